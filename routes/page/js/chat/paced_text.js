/** Text on its way to the screen: so much of it per picture as is smooth, however much comes at once. */

import { onNextFrame } from "../dom/elements.js";

const SLICE = 2_000; // characters between two looks at the clock
const PICTURE_MS = 8; // for all texts of the page together

const waiting = new Set();

export class PacedText {
  #pieces = [];
  #closed = false;

  /** `write(text)` takes in a piece, `draw()` shows what was taken in, `end()` comes when all was. */
  constructor({ write, draw = () => undefined, end = () => undefined }) {
    Object.assign(this, { write, draw, end });
  }

  add(text) {
    if (!text) return;
    this.#pieces.push(text);
    enqueue(this);
  }

  /** No more is added; what was is still shown in its time. */
  close() {
    this.#closed = true;
    enqueue(this);
  }

  /** Takes in what there is until it is `late()`. Returns whether that was all. */
  pour(late) {
    while (this.#pieces.length) {
      this.write(this.#next());
      if (late()) break;
    }
    this.draw();
    if (this.#pieces.length) return false;
    if (this.#closed) this.end();
    return true;
  }

  /** About SLICE characters: many small pieces as one, a long piece in parts. */
  #next() {
    let text = "",
      count = 0;
    while (count < this.#pieces.length && text.length < SLICE) text += this.#pieces[count++];
    const size = SLICE + (/[\udc00-\udfff]/.test(text[SLICE] ?? "") ? 1 : 0); // two halves of a character stay together
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
    if (flow.pour(late)) waiting.delete(flow);
    if (late()) break;
  }
  if (waiting.size) onNextFrame(drainAll);
}
