/** Formulas, recognised and shown as they were written: `$x$`, `$$x$$`, `\(x\)` and `\[x\]`, in lines or as blocks. */

import { h } from "../dom/elements.js";
import { CodeView } from "../text/code.js";
import { escapeCode } from "../text/escape_invisible.js";

const DOLLARS = /\$\$[^$]+\$\$|\$(?![\s$])(?:[^$\\\n]|\\.)*(?<!\s)\$(?![\p{L}\p{N}])/uy;
const MONEY = /^\$\d[\d.,\u2013-]*[kKmM]?\s+\p{L}{2}/u; // `$5 and US$`
const LONGEST = 500; // characters of a formula without an end
const BRACKETS = { "(": "\\)", "[": "\\]" };

const math = (written) => h("code", { class: "math", dir: "ltr" }, escapeCode(written));

/** `$x$`, but neither money nor variables of a shell. */
export function dollars(text, at) {
  if (/[\p{L}\p{N}]/u.test(text[at - 1] ?? " ")) return null;
  DOLLARS.lastIndex = at;
  const found = DOLLARS.exec(text);
  return found && !MONEY.test(found[0]) && { node: math(found[0]), end: at + found[0].length };
}

/** `\(x\)` and `\[x\]`; in text that is still growing up to its end. */
export function brackets(text, at, open) {
  const close = BRACKETS[text[at + 1]];
  const found = close ? text.indexOf(close, at + 2) : -1;
  if (close && found < 0 && open && text.length - at < LONGEST) return { node: math(text.slice(at)), end: text.length };
  if (found < 0 || !text.slice(at + 2, found).trim()) return null;
  return { node: math(text.slice(at, found + 2)), end: found + 2 };
}

/** A line that begins a block: `formula` ends it. */
export function formula({ words }) {
  const opener = /^(?:\$\$(?!\$)|\\\[)/.exec(words)?.[0];
  if (!opener) return null;
  const end = opener === "$$" ? "$$" : "\\]",
    found = words.indexOf(end, 2);
  if (found < 0 && end === "\\]" && closesMore(words.slice(2))) return null; // `\[x]` is brackets around x
  if (found >= 0 && found !== words.trimEnd().length - 2) return null;
  return { kind: "code", formula: end, view: new CodeView("", { formula: true }) };
}

const closesMore = (text) => text.split("]").length > text.split("[").length;
