/** Reads what stands behind the words of a link, `(address "title")` and `[name]`, and definitions of such names. */

import { unescaped } from "./entities.js";

const ANGLED = /<((?:[^<>\n\\]|\\.)*)>/y;
const TITLE = /"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|\(((?:[^()\\]|\\.)*)\)/sy;
const LABEL = /\[((?:[^\\[\]]|\\.){0,999})\]/sy;
const BLANKS = /[ \t\n]*/y,
  ONE_LINE = /[ \t]*\n?[ \t]*/y,
  LINE_END = /[ \t]*(?:\n|$)/y;
const DEEPEST = 32; // brackets in each other in an address

function matched(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

const behind = (pattern, text, at) => at + matched(pattern, text, at)[0].length;

/** The name of a reference, as two spellings of it are the same. */
export const nameOf = (label) => label.trim().replace(/\s+/g, " ").toLowerCase().toUpperCase();

function destinationAt(text, at) {
  if (text[at] === "<") {
    const found = matched(ANGLED, text, at);
    return found && { url: unescaped(found[1]), end: at + found[0].length };
  }
  let depth = 0,
    end = at;
  for (; end < text.length && text[end] > " " && text[end] !== "\x7f"; end += 1) {
    if (text[end] === "\\" && /[!-/:-@[-`{-~]/.test(text[end + 1] ?? "")) end += 1;
    else if (text[end] === "(") depth += 1;
    else if (text[end] === ")" && (depth -= 1) < 0) break;
    if (depth > DEEPEST) return null;
  }
  return depth > 0 ? null : { url: unescaped(text.slice(at, end)), end };
}

function titleAt(text, at) {
  const found = matched(TITLE, text, at);
  return found && { title: unescaped(found[1] ?? found[2] ?? found[3]), end: at + found[0].length };
}

/** `(address "title")` at a place: `{url, title, end}`, or null. */
export function targetAt(text, at) {
  if (text[at] !== "(") return null;
  const found = destinationAt(text, behind(BLANKS, text, at + 1));
  if (!found) return null;
  const gap = behind(BLANKS, text, found.end);
  const titled = gap > found.end ? titleAt(text, gap) : null;
  const end = titled ? behind(BLANKS, text, titled.end) : gap;
  return text[end] === ")" ? { url: found.url, title: titled?.title, end: end + 1 } : null;
}

/** `[name]` at a place: `{label, end}`, or null. */
export function labelAt(text, at) {
  const found = matched(LABEL, text, at);
  return found && { label: found[1], end: at + found[0].length };
}

/** `[name]: address "title"` on lines of its own: `{name, url, title, end}`, or null. */
function definitionAt(text, at) {
  const named = labelAt(text, behind(BLANKS, text, at));
  if (!named?.label.trim() || text[named.end] !== ":") return null;
  const from = behind(ONE_LINE, text, named.end + 1);
  const found = destinationAt(text, from);
  if (!found || found.end === from) return null;
  const { url } = found,
    name = nameOf(named.label);
  const gap = behind(ONE_LINE, text, found.end);
  const titled = gap > found.end ? titleAt(text, gap) : null;
  const end = titled && matched(LINE_END, text, titled.end);
  if (end) return { name, url, title: titled.title, end: titled.end + end[0].length };
  const alone = matched(LINE_END, text, found.end);
  return alone && { name, url, end: found.end + alone[0].length };
}

/** The definitions that a paragraph begins with, and the `rest` of it. */
export function definitionsOf(text) {
  const found = [];
  let at = 0;
  while (at < text.length) {
    const one = definitionAt(text, at);
    if (!one) break;
    found.push(one);
    at = one.end;
  }
  return { found, rest: at ? text.slice(at) : text };
}
