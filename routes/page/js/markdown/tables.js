/** Tables of Markdown: splits rows into cells and builds the elements. */

import { h } from "../dom/elements.js";
import { t } from "../dom/texts.js";

const MOST_CELLS = 200, // of a row; the last one takes the rest
  MOST_MISSING = 8; // more are one wide cell: each short line of a wide table would make hundreds

/** The cells of a line. A `|` in code, or behind a backslash, parts none. */
export function cells(line) {
  const text = line.trim().replace(/^\|/, "");
  const left = new Map(); // how many runs of backticks of each length are still to come
  for (const [run] of text.matchAll(/`+/g)) left.set(run, (left.get(run) ?? 0) + 1);
  const found = [];
  let from = 0,
    within = null;
  for (const { 0: sign, index } of text.matchAll(/\\.|`+|\|/g)) {
    if (sign[0] === "`") {
      left.set(sign, left.get(sign) - 1);
      if (within === null) within = left.get(sign) > 0 ? sign : null;
      else if (within === sign) within = null;
    } else if (sign === "|" && within === null && found.length < MOST_CELLS) {
      found.push(text.slice(from, index));
      from = index + 1;
    }
  }
  if (text.slice(from).trim() || !found.length) found.push(text.slice(from));
  return found.map((cell) => cell.trim().replaceAll("\\|", "|"));
}

/** `left`, `center`, `right` or null of each column, as the row of dashes says. */
export function alignments(columns) {
  return columns.map((dashes) => {
    const [first, last] = [dashes.startsWith(":"), dashes.endsWith(":")];
    return first && last ? "center" : last ? "right" : first ? "left" : null;
  });
}

export function tableOf() {
  const head = h("thead"),
    body = h("tbody");
  const props = { class: "table-box", role: "group", "aria-label": t("markdown.table"), tabindex: 0 };
  return { box: h("div", props, h("table", {}, head, body)), head, body };
}

/** One row; cells that are missing are empty, those that are too many are kept. `draw(element, text)` fills them. */
export function row(kind, given, aligned, draw) {
  const missing = Math.max(0, aligned.length - given.length);
  const wide = missing > MOST_MISSING;
  const all = wide ? given : [...given, ...Array(missing).fill("")];
  const scope = kind === "th" ? "col" : null;
  const drawn = all.map((text, place) => draw(h(kind, { scope, class: aligned[place] }), text));
  return h("tr", {}, drawn, wide && h(kind, { colspan: missing }));
}
