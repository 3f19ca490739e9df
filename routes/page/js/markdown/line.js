/** One line of Markdown, consumed from the left, with its indentation in columns. */

const WIDE = 4; // tab stops

export class Line {
  #at = 0;
  #column = 0;
  #cut = false; // a tab was taken in part

  constructor(text) {
    this.text = text;
    this.look();
  }

  /** Computes `indent` (in columns), `blank`, and `words`: the rest without its indentation. */
  look() {
    let at = this.#at,
      column = this.#column;
    for (; this.text[at] === " " || this.text[at] === "\t"; at += 1) {
      column += this.text[at] === "\t" ? WIDE - (column % WIDE) : 1;
    }
    this.indent = column - this.#column;
    this.blank = at >= this.text.length;
    this.words = this.text.slice(at);
  }

  /** Takes off at most so many columns of blanks. */
  skip(columns) {
    let left = Math.min(columns, this.indent);
    while (left > 0) {
      const wide = this.text[this.#at] === "\t" ? WIDE - (this.#column % WIDE) : 1;
      this.#cut = wide > left;
      this.#column += Math.min(wide, left);
      if (!this.#cut) this.#at += 1;
      left -= wide;
    }
    this.look();
  }

  /** Takes off the indentation and the first `count` characters behind it. */
  take(count) {
    this.skip(this.indent);
    this.#at += count;
    this.#column += count;
    this.look();
  }

  /** The rest of the line, indentation included. */
  get rest() {
    const cut = this.#cut ? " ".repeat(WIDE - (this.#column % WIDE)) : "";
    return cut + this.text.slice(this.#at + (this.#cut ? 1 : 0));
  }
}

/** Where a text is cut that is longer than `most`: behind a line or a word, if one ends in the second half. */
export function cutWithin(text, most) {
  const found = Math.max(text.lastIndexOf("\n", most - 1), text.lastIndexOf(" ", most - 1));
  if (found > most / 2) return found + 1;
  return /[\ud800-\udbff]/.test(text[most - 1]) ? most - 1 : most;
}
