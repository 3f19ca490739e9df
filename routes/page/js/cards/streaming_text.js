/** Streaming text in monospace: scrolls to the end, unless the reader has scrolled up. */

import { h, onNextFrame } from "../dom/elements.js";
import { escapeText } from "../text/exact_text.js";

const BLOCK = 8_000; // characters in one block of layout
const BLOCK_END = 16_000; // hard limit, for text without newlines
const NEAR = 30;

export class StreamingText {
  #waiting = [];
  #incomplete = ""; // half a surrogate pair, or the first half of CRLF
  #block = null;
  #following = true;

  constructor(label) {
    const props = { class: "streaming-text", role: "group", tabindex: 0, dir: "ltr", "aria-label": label };
    this.element = h("div", { ...props, onscroll: () => this.#scrolled() });
  }

  append(text) {
    this.#waiting.push(text);
    onNextFrame(this.#draw);
  }

  #draw = () => {
    const text = this.#incomplete + this.#waiting.splice(0).join("");
    this.#incomplete = text.slice(/[\r\ud800-\udbff]$/.test(text) ? -1 : text.length);
    const shown = escapeText(text.slice(0, text.length - this.#incomplete.length).replaceAll("\r\n", "\n"));
    for (let left = shown; left; ) left = this.#put(left);
    // After all drawing of this frame, so that many elements cause one layout.
    if (this.#following) queueMicrotask(() => (this.element.scrollTop = this.element.scrollHeight));
  };

  /** Fills the last block; returns the rest. */
  #put(text) {
    if (!this.#block) this.element.append(h("div", {}, (this.#block = document.createTextNode(""))));
    const room = BLOCK - this.#block.length;
    const newline = room > 0 ? text.indexOf("\n", room) : text.indexOf("\n");
    const most = BLOCK_END - this.#block.length;
    const end = newline < 0 || newline >= most ? Math.min(most, text.length) : newline;
    this.#block.appendData(text.slice(0, end));
    if (end === text.length) return "";
    this.#block = null;
    return text.slice(text[end] === "\n" ? end + 1 : end);
  }

  #scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.element;
    this.#following = scrollHeight - scrollTop - clientHeight < NEAR;
  }
}
