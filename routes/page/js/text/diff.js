/** A diff as an element: added and removed lines are marked by signs and hidden text, not only by colour. */

import { counted, rowsOfChange, rowsOfUnified } from "./diff_rows.js";
import { button, h } from "../dom/elements.js";
import { escapeText } from "./exact_text.js";
import { fileLanguage } from "./file_language.js";
import { t } from "../dom/texts.js";

const SHOWN = 24; // rows, before "Show all"
const MOST = 5_000; // and at a time
const LONGEST = 4_000; // characters of a line
// Rows do not show it, and a line that has no end goes on with what stands behind it in the file.
const ADDED_END = t("diff.newline.added");
const LOST_END = t("diff.newline.removed");
const SIGNS = { added: "+", removed: "−", same: " " };
const WORDS = { added: `${t("diff.added")} `, removed: `${t("diff.removed")} ` };

/** A unified diff as `edit_file` and MCP trust pins contain it; text before it becomes notes. */
export function unifiedDiff(text, label = t("diff.changes")) {
  return diffOf(rowsOfUnified(text), label);
}

/** What would change if `before` became `after`. */
export function changeDiff(before, after, label = t("diff.changes")) {
  // Where in the file they are is not known: numbers would mislead.
  const rows = rowsOfChange(before ?? "", after ?? "").map(({ kind, text }) => ({ kind, text }));
  const [had, has] = [before, after].map((text) => /\n$/.test(text ?? ""));
  if (before && after && had !== has) rows.push({ kind: "note", text: has ? ADDED_END : LOST_END });
  return diffOf(rows, label);
}

/** The rows of a diff as an element, in the colours of its language if `label` is a path; a long one is folded. */
export function diffOf(given, label) {
  const { added, removed } = counted(given);
  const isNew = given.every(({ old }) => !old); // a new file has no numbers of before
  const rows = isNew ? given.map(({ old, ...row }) => row) : given;
  const name = t("diff.label", { label, count: added, removed });
  const props = { class: "diff", role: "group", tabindex: 0, dir: "ltr", "aria-label": name };
  return appendRows(h("div", props), rows, 0, SHOWN, fileLanguage(label));
}

/** Appends the rows up to `to`, and a button for more: whoever approves of it can see all of it. */
function appendRows(element, rows, from, to, language) {
  element.append(...rows.slice(from, to).map(rowOf));
  const colour = ({ colourLines }) => colourLines([...element.querySelectorAll(".diff-text")], language);
  if (language) import("./diff_colours.js").then(colour, () => undefined); // it can be read without them
  const next = Math.min(rows.length, to + MOST);
  const words =
    next === rows.length
      ? t("show.lines", { lines: rows.length })
      : t("show.more_lines", { more: MOST, lines: rows.length });
  if (rows.length > to) element.append(moreButton(words, () => appendRows(element, rows, to, next, language)));
  return element;
}

function moreButton(words, show) {
  const showMore = () => {
    const box = more.closest(".diff");
    more.remove();
    show();
    box.focus({ preventScroll: true });
  };
  const more = button(words, showMore, { class: "diff-more" });
  return more;
}

/** One row: numbers, sign and text; what is added or removed is said in words to who does not see it. */
export function rowOf({ kind, old, now, text }) {
  if (kind === "hunk" || kind === "note") return h("div", { class: `diff-row ${kind}` }, escapeText(text));
  const word = WORDS[kind] ? h("span", { class: "visually-hidden" }, WORDS[kind]) : null;
  return h(
    "div",
    { class: `diff-row ${kind}` },
    [old, now].map((line) => (line === undefined ? null : numberOf(line))),
    h("span", { class: "diff-sign", "aria-hidden": "true" }, SIGNS[kind]),
    word,
    h("span", { class: "diff-text" }, lineText(text)),
  );
}

const numberOf = (line) => h("span", { class: "diff-number", "aria-hidden": "true" }, String(line ?? ""));

/** The line; of a very long one its beginning, and a button for the rest. */
function lineText(text) {
  const line = escapeText(text.replace(/\r$/, ""));
  if (line.length <= LONGEST) return line;
  const end = /[\ud800-\udbff]/.test(line[LONGEST - 1]) ? LONGEST - 1 : LONGEST;
  const rest = h("span", {});
  const words = t("show.more_characters", { count: line.length - end });
  return [line.slice(0, end), rest, moreButton(words, () => rest.append(line.slice(end)))];
}
