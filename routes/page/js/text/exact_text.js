/**
 * Text for approval: every character is visible. Invisible characters and those that change the direction of the text
 * are shown as code points, as `dragoman chat` does.
 */

import { button, h } from "../dom/elements.js";
import { forEachInSlices } from "../dom/scheduling.js";
import { t } from "../dom/texts.js";
import { codeOf } from "./escape_invisible.js";

const INVISIBLE = /(?![ \n\t])[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]/u;
// The look behind keeps this linear: a run of blanks is tried once, not from each of its characters on.
const MARKED = new RegExp(`(?<unseen>${INVISIBLE.source})|(?<![ \\t])[ \\t]+(?=\\n|$)`, "gu");
const EVERY = new RegExp(INVISIBLE.source, "gu");
const RIGHT_TO_LEFT = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;
const MIXED =
  /\p{Script=Latin}[\p{Script=Cyrillic}\p{Script=Greek}\p{Script=Armenian}]|[\p{Script=Cyrillic}\p{Script=Greek}\p{Script=Armenian}]\p{Script=Latin}/u;

const MOST = 40_000; // characters shown before "Show all"
const MAX_NAMED = 6;
const HEAD = 24_000;
const TAIL = 12_000;

/** The text with invisible characters as `⟨U+202E⟩`; spaces, tabs and newlines stay. */
export function escapeText(text) {
  return text.replace(EVERY, (character) => `⟨${codeOf(character)}⟩`);
}

/** The same on one line: newlines and tabs are escaped as well. */
export function escapeLine(text) {
  return escapeText(text).replace(/[\n\t]/g, (character) => `⟨${codeOf(character)}⟩`);
}

/** The distinct invisible characters in it: `["U+202E", "U+200B"]`. */
export function invisibleIn(text) {
  return [...new Set(text.match(EVERY) ?? [])].map(codeOf);
}

export function withoutInvisible(text) {
  return text.replace(EVERY, "");
}

/**
 * A block of monospaced text with marks for invisible characters and trailing spaces.
 * Of a long text it shows head and tail, with a note before it. `draw(from, to)`, if given, returns the nodes of a part
 * of the text. Returns elements.
 */
export function exactBlock(text, label, draw = null) {
  const block = h("pre", { class: "exact", dir: "ltr", tabindex: 0, role: "group", "aria-label": label });
  if (text.length <= MOST) {
    block.append(...nodes(text, draw));
    return [block];
  }
  const from = characterBoundary(text, HEAD);
  const to = characterBoundary(text, text.length - TAIL);
  const missing = t("exact.missing", { count: to - from });
  const all = button(t("show.all"), () => {
    note.remove();
    showAll(block, text, draw);
  });
  const note = h("p", { class: "approval-warning" }, t("exact.missing.middle", { count: to - from }), " ", all);
  const gap = h("span", { class: "exact-gap" }, missing);
  const tail = draw && ((start, end) => draw(to + start, to + end));
  block.append(...nodes(text.slice(0, from), draw), gap, ...nodes(text.slice(to), tail));
  return [note, block];
}

/** The place, or the one before it where it would cut a character in two. */
const characterBoundary = (text, place) => (/^[\uDC00-\uDFFF]/.test(text.slice(place)) ? place - 1 : place);

function showAll(block, text, draw) {
  block.replaceChildren();
  block.focus();
  const node = drawingLines(draw);
  return forEachInSlices(
    linesOf(text),
    (line) => block.append(node(line)),
    () => block.isConnected,
  );
}

/** Warnings about text that can look like other text. */
export function warnings(text) {
  const unseen = invisibleIn(text);
  return [
    unseen.length && t("exact.invisible", { codes: unseen.slice(0, MAX_NAMED).join(", ") }),
    RIGHT_TO_LEFT.test(text) && t("exact.right_to_left"),
    MIXED.test(text) && t("exact.mixed"),
  ].filter(Boolean);
}

const linesOf = (text) => text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
const nodes = (text, draw) => linesOf(text).map(drawingLines(draw));

/** Draws lines one after the other, a block for each: wrapped parts are indented, so that they are no separate lines. */
function drawingLines(draw) {
  let before = 0;
  return (line) => {
    const start = before;
    before += line.length;
    const part = draw ? (from, to) => draw(start + from, start + to) : (from, to) => [line.slice(from, to)];
    return h("span", { class: "exact-line" }, withMarks(line, part));
  };
}

function withMarks(line, part) {
  const found = [];
  let at = 0;
  for (const match of line.matchAll(MARKED)) {
    if (match.index > at) found.push(...part(at, match.index));
    found.push(match.groups.unseen ? invisibleMark(match[0]) : endMark(match[0]));
    at = match.index + match[0].length;
  }
  if (at < line.length) found.push(...part(at, line.length));
  return found;
}

function invisibleMark(character) {
  return h("mark", { class: "invisible-mark" }, `⟨${codeOf(character)}⟩`);
}

/** The spaces themselves, so that what is copied is what was there; the style makes them visible. */
function endMark(spaces) {
  return h("mark", { class: "end-mark", title: t("exact.trailing", { count: spaces.length }) }, spaces);
}
