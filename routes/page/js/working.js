/** A run is under way and nothing of it can be seen yet: a quiet line with the time that passes. */

import { h } from "./dom.js";
import { span, ticking } from "./clock.js";

export class Working {
  #since = null;
  #stop = null;
  #time = h("span", { class: "working-time" });
  #words = h("span", {}, "Thinking");

  constructor() {
    this.element = h(
      "p",
      { class: "working faint", hidden: true },
      h("span", { class: "pulse" }),
      this.#words,
      " ",
      this.#time,
    );
  }

  show(words = "Thinking") {
    this.#words.textContent = words;
    if (this.#stop) return;
    this.#since = performance.now();
    this.#time.textContent = "";
    this.element.hidden = false;
    this.#stop = ticking(() => this.#tick());
  }

  hide() {
    this.#stop?.();
    this.#stop = null;
    this.element.hidden = true;
  }

  #tick() {
    const seconds = (performance.now() - this.#since) / 1000;
    if (seconds >= 1) this.#time.textContent = span(Math.floor(seconds)).replace(".0", "");
  }
}
