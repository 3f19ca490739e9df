/** One line of a terminal: spans while text is only appended, cells once something is overwritten. */

import { PLAIN } from "./ansi_style.js";

export const COLUMNS = 4_000; // longer lines are wrapped
const FAR = 500; // how far to the right of its end a jump may go
const TAB = 8;

const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1f64f}\u{1f680}-\u{1f6ff}\u{1f900}-\u{1faff}\u{20000}-\u{3fffd}]/u;
const NO_WIDTH = /[\p{M}\u200b-\u200f\u2060-\u2064\ufeff]/u;
const NARROW = /^[\x20-\x7e]*$/;
const MARKS = 8; // characters without a width that one cell may carry

export class Line {
  column = 0;
  #spans = [];
  #length = 0; // in the units of the text; of a row of cells, in cells
  #cells = null;

  /** Writes at the cursor. Returns the text that does not fit into the line. */
  write(text, style) {
    if (this.column !== this.#length) this.#toCells();
    if (this.#cells) return this.#overwrite(text, style);
    const fits = cut(text, COLUMNS - this.#length);
    this.#append(fits, style);
    this.#length = this.column = this.#length + fits.length;
    return text.slice(fits.length);
  }

  /** Moves the cursor; only writing makes the line longer. */
  to(column) {
    if (column > 0) this.#toCells(); // columns differ from characters if some are wide, so cells are needed
    this.column = Math.max(0, Math.min(column, this.#length + FAR, COLUMNS - 1));
  }

  by(columns) {
    this.#toCells();
    this.to(this.column + columns);
  }

  tab(style) {
    if (!this.#cells && this.column === this.#length) return void this.write("\t", style);
    this.to((Math.floor(this.column / TAB) + 1) * TAB);
  }

  /** 0: from the cursor to the end, 1: from the beginning to the cursor, 2: all of it. */
  erase(what) {
    if (what === 2 || (what === 0 && this.column === 0)) return this.#clear();
    if (what === 0 && this.column >= this.#length) return undefined;
    if (what > 2 || (what === 1 && this.column >= FAR)) return undefined;
    this.#toCells();
    if (what === 0) this.#cells.length = this.#length = Math.min(this.#length, this.column);
    else for (let at = 0; at <= this.column && at < this.#length; at++) this.#cells[at] = null;
    return undefined;
  }

  get spans() {
    return this.#cells ? spansOf(this.#cells) : this.#spans;
  }

  #append(text, style) {
    const last = this.#spans.at(-1);
    if (last?.style === style) last.text += text;
    else if (text) this.#spans.push({ text, style });
  }

  #clear() {
    this.#spans = [];
    this.#cells = this.column ? [] : null;
    this.#length = 0;
  }

  #toCells() {
    if (this.#cells) return;
    const end = this.column === this.#length;
    const column = this.column;
    const spans = this.#spans;
    this.#cells = [];
    this.column = 0;
    this.#length = 0;
    for (const { text, style } of spans) this.#overwrite(text, style, Number.POSITIVE_INFINITY);
    this.column = end ? this.#length : column;
  }

  #overwrite(text, style, most = COLUMNS) {
    let done = 0;
    const narrow = NARROW.test(text);
    for (const character of text) {
      if (this.column >= most) return text.slice(done);
      done += character.length;
      if (narrow) this.#put(character, style, 1);
      else if (character === "\t") this.#tabbed(style);
      else if (NO_WIDTH.test(character)) this.#mark(character);
      else this.#put(character, style, WIDE.test(character) ? 2 : 1);
    }
    return "";
  }

  #put(text, style, width) {
    const cells = this.#cells;
    if (cells.length < this.column) cells.length = this.column; // blanks; one by one they take long
    if (cells[this.column]?.text === "") cells[this.column - 1] = null; // the right half of a wide one
    cells[this.column] = { text, style };
    if (width === 2) cells[this.column + 1] = { text: "", style };
    if (cells[this.column + width]?.text === "") cells[this.column + width] = null;
    this.column += width;
    this.#length = cells.length;
  }

  #tabbed(style) {
    do this.#put(" ", style, 1);
    while (this.column % TAB);
  }

  #mark(character) {
    const wide = this.#cells[this.column - 1]?.text === "";
    const cell = this.#cells[this.column - (wide ? 2 : 1)];
    if (cell && cell.text.length < MARKS) cell.text += character;
  }
}

function spansOf(cells) {
  const spans = [];
  let last = null;
  for (const cell of cells) {
    const style = cell ? cell.style : PLAIN;
    if (style !== last?.style) spans.push((last = { text: "", style }));
    last.text += cell ? cell.text : " ";
  }
  return spans;
}

/** At most `most` units of the text, no character cut in two. */
function cut(text, most) {
  if (text.length <= most) return text;
  const high = text.charCodeAt(most - 1);
  return text.slice(0, high >= 0xd800 && high <= 0xdbff ? most - 1 : most);
}
