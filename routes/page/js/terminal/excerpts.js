/** The last lines of an output. */

import { linesOf, textOf } from "./ansi.js";
import { t } from "../dom/texts.js";

export const LINES = 12;
const CUT =
  /\[\.{3,} (?:[\d,]+ lines, )?[\d,]+ characters left out \.\.\.\]|^\[read_result\(.* shows what is left out\.\]$/m;
export const EXCERPT_CHARACTERS = 16_384; // of a long text, for its last lines

export const lastLines = (text) => linesOf(text.slice(-EXCERPT_CHARACTERS).trimEnd()).slice(-LINES);

/** The number of lines of an output that the model has received; 0: all of them. */
export function linesSeen(text) {
  if (!CUT.test(text)) return 0;
  return text
    .trimEnd()
    .split("\n")
    .filter((line) => !CUT.test(line)).length;
}

/** "100,000 lines · the model saw 144": of all that was written, whatever is stored. `total`: 0 if it is not known. */
export function countWords(total, seen) {
  const lines = total > LINES || (total > 1 && !seen) ? t("tail.lines", { count: total }) : "";
  const part = seen && t(lines ? "tail.saw" : "tail.cut", { count: seen });
  return [lines, part].filter(Boolean).join(" · ");
}

/** Whether two excerpts show the same text: of a long line the server sends the end, after an ellipsis. */
export function areSame(seen, lines) {
  const one = textOf(seen).trimEnd().split("\n");
  const other = textOf(lines).trimEnd().split("\n");
  if (one.length !== other.length) return false;
  return one.every((line, at) => {
    const whole = other[at].trimEnd();
    return line.startsWith("…") ? whole.endsWith(line.slice(1).trimEnd()) : line.trimEnd() === whole;
  });
}
