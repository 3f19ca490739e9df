/** The last lines of an output. */

import { linesOf, textOf } from "./ansi.js";

export const LINES = 12;
export const EXCERPT_CHARACTERS = 16_384; // of a long text, for its last lines

export const lastLines = (text) => linesOf(text.slice(-EXCERPT_CHARACTERS).trimEnd()).slice(-LINES);

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
