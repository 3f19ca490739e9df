/** Syntax colours in the lines of a diff: those of the language of its file. */

import { h, hasSelection } from "../dom/elements.js";
import { fileLanguage } from "./file_language.js";
import { worker } from "./highlight.js";
import { grammarsOf } from "./languages.js";

const SIGNED = /^[-+ ](?!\+\+ |-- )/;
const NAMED = /^\+\+\+ (?:b\/)?(\S+)/gm;

/** Colours the elements, each of which holds the text of one line. */
export async function colourLines(elements, language) {
  const lines = elements.map((element) => element.textContent);
  const grammars = grammarsOf(language);
  const found = grammars && (await worker.tokens(lines.join("\n"), grammars));
  if (!found) return;
  const pieces = lines.map(() => []);
  let [line, from] = [0, 0];
  for (let at = 0; at < found.tokens.length; at += 2) {
    const kind = found.kinds[found.tokens[at + 1]];
    for (let left = found.tokens[at]; left > 0; ) {
      const length = Math.min(left, lines[line].length - from);
      const piece = lines[line].slice(from, from + length);
      if (piece) pieces[line].push(kind ? h("span", { class: `c-${kind}` }, piece) : piece);
      from += length;
      left -= length;
      if (left > 0) [line, from, left] = [line + 1, 0, left - 1]; // the end of the line
    }
  }
  elements.forEach((element, at) => hasSelection(element) || element.replaceChildren(...pieces[at]));
}

/** Colours a fenced diff, if all of its files are of one language. */
export function colourFence(code) {
  const text = code.textContent.replace(/\n$/, "");
  const languages = new Set([...text.matchAll(NAMED)].map(([, path]) => fileLanguage(path)));
  if (languages.size !== 1 || hasSelection(code)) return undefined;
  const rows = text.split("\n").map((line) => [line, h("span", {}, line.slice(1))]);
  const signed = rows.filter(([line]) => SIGNED.test(line));
  const kindOf = { "+": "c-added", "-": "c-removed" };
  const drawn = ([line, rest]) =>
    SIGNED.test(line) ? h("span", { class: kindOf[line[0]] }, line[0], rest) : h("span", { class: "c-comment" }, line);
  const parts = [...code.children];
  parts[0].replaceChildren(...rows.flatMap((row) => [drawn(row), "\n"]));
  parts.slice(1).forEach((part) => part.remove());
  return colourLines(
    signed.map(([, rest]) => rest),
    [...languages][0],
  );
}
