/** Draws streamed text in bounded steps per frame, however much arrives at once. */

import { onNextFrame } from "../dom/elements.js";

const SLICE = 2_000; // characters between two checks of the time
const PICTURE_MS = 8; // per frame, for all texts together

const waiting = new Set();

export class PacedText {
  #pieces = [];
  #closed = false;

  /** Of `view` `write(text)` processes a piece, `draw()` shows it, and `end()` follows the last one. */
  constructor(view) {
    this.view = view;
  }

  add(text) {
    if (!text) return;
    this.#pieces.push(text);
    enqueue(this);
  }

  /** No more text is added; the remaining text is still drawn over the next frames. */
  close() {
    this.#closed = true;
    enqueue(this);
  }

  /** Text that has not been drawn will not be. */
  drop() {
    this.#pieces = [];
    waiting.delete(this);
  }

  /** Processes text until `late()`. Returns whether all of it was processed. */
  process(late) {
    while (this.#pieces.length) {
      this.view.write(this.#next());
      if (late()) break;
    }
    this.view.draw();
    if (this.#pieces.length) return false;
    if (this.#closed) this.view.end();
    return true;
  }

  /** About SLICE characters: joins small pieces, splits a large one. */
  #next() {
    let text = "",
      count = 0;
    while (count < this.#pieces.length && text.length < SLICE) text += this.#pieces[count++];
    const size = SLICE + (/[\udc00-\udfff]/.test(text[SLICE] ?? "") ? 1 : 0); // does not split a surrogate pair
    this.#pieces.splice(0, count, ...(text.length > size ? [text.slice(size)] : []));
    return text.slice(0, size);
  }
}

function enqueue(flow) {
  waiting.add(flow);
  onNextFrame(drainAll);
}

function drainAll() {
  const until = performance.now() + PICTURE_MS;
  const late = () => performance.now() > until;
  for (const flow of waiting) {
    if (flow.process(late)) waiting.delete(flow);
    if (late()) break;
  }
  if (waiting.size) onNextFrame(drainAll);
}
