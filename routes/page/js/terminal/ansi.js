/**
 * Interprets terminal output as lines of spans `{text, style}`, in one pass over the text: colours, carriage returns,
 * backspaces and erased lines are applied; titles, links and modes are dropped.
 *
 * It is the cheap tail of what prints lines: a build, a log, a progress bar. What moves the cursor to other lines,
 * inserts or deletes there, or takes the alternate screen, `needsScreen`: xterm.js shows that (screen.js).
 */

import { Line } from "./ansi_line.js";
import { PLAIN, styled } from "./ansi_style.js";

const UNFINISHED = 256; // characters of an escape sequence that may come in two pieces

// One alternative for each kind of character; sticky, so that nothing is looked at twice.
const TOKEN = new RegExp(
  [
    "(?<text>[^\\x00-\\x1f\\x7f-\\x9f]+)",
    "(?<move>[\\n\\r\\t\\b])",
    "\\x1b\\[(?<parameters>[0-?]*)[ -/]*(?<final>[@-~])",
    "(?<string>\\x1b[\\]PX^_])",
    "\\x1b[ -/]*[0-~]?",
    "[^]",
  ].join("|"),
  "uy",
);
const INCOMPLETE = /^\x1b(?:\[[0-?]*[ -/]*|[ -/]*)$/;
const STRING_END = /[\x07\n\x18\x1a\x1b\x9c]/g;

const MOVES = {
  "\n": (terminal) => terminal.endLine(),
  "\r": (terminal) => terminal.line.to(0),
  "\b": (terminal) => terminal.line.by(-1),
  "\t": (terminal) => terminal.line.tab(terminal.style),
};

const FINALS = {
  m: (terminal, parameters) => (terminal.style = styled(terminal.style, parameters)),
  K: (terminal, parameters) => terminal.line.erase(number(parameters, 0)),
  C: (terminal, parameters) => terminal.line.by(Math.max(1, number(parameters, 1))),
  D: (terminal, parameters) => terminal.line.by(-Math.max(1, number(parameters, 1))),
  G: (terminal, parameters) => terminal.line.to(number(parameters, 1) - 1),
};

const SCREEN = new Set("ABEFHJLMPSTX@`adefr"); // final characters of what only a screen can show
const SCREEN_MODES = /^\?(?:6|47|69|1047|1049)$/; // alternate screens, and where the cursor may go
const SCREEN_ESCAPES = /^\x1b[78DEM]/;

export class Terminal {
  needsScreen = false;
  style = PLAIN;
  line = new Line();
  #finished = [];
  #pending = "";
  #inString = false; // inside an escape string, such as a title or a link

  /** Processes the next chunk of output, of any size. */
  feed(written) {
    const text = this.#pending + written;
    this.#pending = "";
    let at = 0;
    while (at < text.length) at = this.#inString ? this.#skip(text, at) : this.#step(text, at);
  }

  /** The lines completed since the last call: arrays of spans. */
  take() {
    return this.#finished.splice(0);
  }

  /** The spans of the line that is still being written. */
  get open() {
    return this.line.spans;
  }

  endLine() {
    this.#finished.push(this.line.spans);
    this.line = new Line();
  }

  #step(text, at) {
    TOKEN.lastIndex = at;
    const { 0: token, groups } = TOKEN.exec(text);
    const end = at + token.length;
    if (groups.text) this.#write(groups.text);
    else if (groups.move) MOVES[groups.move](this);
    else if (token[0] === "\x1b" && this.#isIncomplete(text, at)) return text.length;
    else if (groups.final) this.#applySequence(groups);
    else if (groups.string) this.#inString = true;
    else if (SCREEN_ESCAPES.test(token)) this.needsScreen = true;
    return end;
  }

  #write(text) {
    for (let left = text; left; ) {
      left = this.line.write(left, this.style);
      if (left) this.endLine(); // longer than any line is shown
    }
  }

  /** Whether the escape sequence at the end of the text is incomplete; it is kept for the next chunk. */
  #isIncomplete(text, at) {
    if (text.length - at > UNFINISHED || !INCOMPLETE.test(text.slice(at))) return false;
    this.#pending = text.slice(at);
    return true;
  }

  #applySequence({ parameters, final }) {
    if ("hl".includes(final) && SCREEN_MODES.test(parameters)) this.needsScreen = true;
    if (/[<=>?]/.test(parameters)) return; // of one make of terminals
    if (SCREEN.has(final)) this.needsScreen = true;
    FINALS[final]?.(this, parameters);
  }

  /** Passes over the inside of a title or link; a line's end ends it too, so that it cannot swallow the rest. */
  #skip(text, at) {
    STRING_END.lastIndex = at;
    const found = STRING_END.exec(text);
    if (!found) return text.length;
    const next = found.index + 1;
    if (found[0] === "\x1b" && next === text.length) {
      this.#pending = "\x1b";
      return next;
    }
    this.#inString = false;
    if (found[0] === "\x1b") return text[next] === "\\" ? next + 1 : found.index;
    return found[0] === "\n" ? found.index : next;
  }
}

/** All lines of a text, the last one included. */
export function linesOf(text) {
  const terminal = new Terminal();
  terminal.feed(text);
  const lines = terminal.take();
  if (terminal.open.length) lines.push(terminal.open);
  return lines;
}

/** The same without colours: what a person would copy off the screen. */
export const textOf = (lines) => lines.map((spans) => spans.map(({ text }) => text).join("")).join("\n");

function number(parameters, otherwise) {
  const given = Number.parseInt(parameters, 10);
  return Number.isNaN(given) ? otherwise : given;
}
