/** What changed, line by line, with more than colour to tell lines apart. */

import { counted, rowsOfChange, rowsOfUnified } from "./diff_lines.js";
import { h } from "./dom.js";
import { spelled } from "./exact.js";

export { counted } from "./diff_lines.js";

const SHOWN = 24; // rows, before somebody asks for all
const MOST = 5_000;
const LONGEST = 4_000; // characters of a line
const SIGNS = { new: "+", gone: "−", same: " " };
const WORDS = { new: "added: ", gone: "removed: " };

/** A unified diff as `edit_file` and MCP pins tell it; text before it is shown as it is. */
export function unifiedDiff(text, label = "Changes") {
  return diffOf(rowsOfUnified(text), label);
}

/** What would change if `before` became `after`. */
export function changed(before, after, label = "Changes") {
  const rows = rowsOfChange(before ?? "", after ?? "");
  // Where in the file they are is not known: numbers would mislead.
  return diffOf(
    rows.map(({ kind, text }) => ({ kind, text })),
    label,
  );
}

/** The rows of a diff as an element; a long one is folded. */
export function diffOf(given, label) {
  const { added, removed } = counted(given);
  const isNew = given.every(({ old }) => !old); // a new file has no numbers of before
  const rows = isNew ? given.map(({ old, ...row }) => row) : given;
  const name = `${label}: ${added} ${added === 1 ? "line" : "lines"} added, ${removed} removed`;
  const props = { class: "diff", role: "group", tabindex: 0, dir: "ltr", "aria-label": name };
  const element = h("div", props, rows.slice(0, SHOWN).map(rowOf));
  if (rows.length <= SHOWN) return element;
  const onclick = () => {
    more.replaceWith(...rows.slice(SHOWN, MOST).map(rowOf), ...(rows.length > MOST ? [tooLong(rows.length)] : []));
    element.focus({ preventScroll: true });
  };
  const more = h(
    "button",
    { type: "button", class: "diff-more", onclick },
    `Show all ${rows.length.toLocaleString()} lines`,
  );
  element.append(more);
  return element;
}

/** One row: numbers, sign and text; what is added or removed is said in words to who does not see it. */
export function rowOf({ kind, old, now, text }) {
  if (kind === "place" || kind === "note") return h("div", { class: `diff-row ${kind}` }, spelled(text));
  const word = WORDS[kind] ? h("span", { class: "unseen" }, WORDS[kind]) : null;
  return h(
    "div",
    { class: `diff-row ${kind}` },
    [old, now].map((line) => (line === undefined ? null : numberOf(line))),
    h("span", { class: "diff-sign", "aria-hidden": "true" }, SIGNS[kind]),
    word,
    h("span", { class: "diff-text" }, shown(text)),
  );
}

const numberOf = (line) => h("span", { class: "diff-number", "aria-hidden": "true" }, String(line ?? ""));

/** The line; of one that is too long to be looked at, its beginning and how much more there is. */
function shown(text) {
  const line = spelled(text.replace(/\r$/, "").slice(0, LONGEST));
  const more = text.length - LONGEST;
  return more > 0 ? `${line}… [${more.toLocaleString()} more characters]` : line;
}

function tooLong(rows) {
  return h("div", { class: "diff-row note" }, `${(rows - MOST).toLocaleString()} more lines are not shown here.`);
}
