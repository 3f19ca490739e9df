/** What people and models say: the person's words, the model's answer as it streams in, its thoughts folded. */

import { h, soon } from "./dom.js";

/** The person's own words, as they are. `message`: `{text, attachments?}` of a message. */
export function userMessage({ text, attachments = [] }, session, { steered = false } = {}) {
  return h("div", { class: steered ? "said steered" : "said" }, h("p", { class: "said-text" }, text));
}

/** The model's answer: `add` text as it comes, `close` when something else follows. */
export class Answer {
  #text = "";

  constructor(view) {
    this.element = h("div", { class: "answer" });
  }

  add(text) {
    this.#text += text;
    soon(this.#draw);
  }

  #draw = () => (this.element.textContent = this.#text);

  close() {
    this.#draw();
  }
}

/** What a model thinks before it answers, folded. */
export class Thought {
  #text = "";

  constructor(view) {
    this.words = h("div", { class: "thought-text" });
    this.element = h("details", { class: "thought" }, h("summary", {}, "Thoughts"), this.words);
  }

  add(text) {
    this.#text += text;
    soon(this.#draw);
  }

  #draw = () => (this.words.textContent = this.#text);

  close() {
    this.#draw();
  }
}
