/** The whole output as lines, drawn as much of it in a frame as fits. */

import { Terminal, textOf } from "./ansi.js";
import { LineWindow } from "./line_window.js";
import { onNextFrame } from "../dom/elements.js";
import { yieldToBrowser } from "../dom/scheduling.js";

const PER_FRAME = 32_768; // characters

export class WholeLines {
  following = true;
  #terminal = new Terminal();
  #queue = [];
  #count = 0;
  #ended = false;
  #closed = false;

  /** `onDrawn()` after each frame's part. */
  constructor(box, onDrawn) {
    this.roll = new LineWindow(box);
    this.onDrawn = onDrawn;
  }

  /** Takes more of the output. */
  add(text) {
    this.#queue.push(text);
    onNextFrame(this.draw);
  }

  /** No more comes: a line without an end is complete, too. */
  end() {
    this.#ended = true;
    onNextFrame(this.draw);
  }

  /** Whether all that has come is drawn. */
  get isDrawn() {
    return !this.#queue.length;
  }

  get isComplete() {
    return this.#ended && this.isDrawn;
  }

  /** Lines that have come so far, an unfinished one included. */
  get count() {
    return this.#count + (this.#terminal.open.length ? 1 : 0);
  }

  /** Whether the program moves the cursor in ways that lines cannot show: a screen is needed. */
  get needsScreen() {
    return this.#terminal.needsScreen;
  }

  draw = () => {
    if (this.#closed) return;
    for (let room = PER_FRAME; this.#queue.length && room > 0; ) {
      const text = this.#queue.shift();
      this.#terminal.feed(text.slice(0, room));
      if (text.length > room) this.#queue.unshift(text.slice(room));
      room -= text.length;
    }
    if (this.isComplete && this.#terminal.open.length) this.#terminal.endLine();
    const lines = this.#terminal.take();
    this.#count += lines.length;
    this.roll.add(lines);
    this.roll.draw(this.following, this.#terminal.open);
    this.onDrawn();
    if (!this.isDrawn) onNextFrame(this.draw);
  };

  async find(term, how) {
    if (!term) return this.roll.endSearch();
    return this.roll.find(term, how);
  }

  close() {
    this.#closed = true;
    this.roll.endSearch();
  }
}

/** All pieces without colours. */
export async function plainText(pieces) {
  const terminal = new Terminal();
  const lines = [];
  for await (const text of pieces) {
    for (let at = 0; at < text.length; at += PER_FRAME) {
      terminal.feed(text.slice(at, at + PER_FRAME));
      lines.push(...terminal.take());
      await yieldToBrowser();
    }
  }
  return textOf(terminal.open.length ? [...lines, terminal.open] : lines);
}
