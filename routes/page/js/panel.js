/** The panel at the side (on a phone: over the page): one thing at a time, opened by a button, closed by Escape. */

import { fill, h, icon } from "./dom.js";

export class Panel {
  #opener = null;
  name = null;

  constructor(element) {
    this.element = element;
    element.addEventListener("keydown", (event) => event.key === "Escape" && this.close());
  }

  /** `name` tells panels apart: opening the one that is open closes it. Returns whether it is open now. */
  toggle(name, title, content, opener) {
    if (this.name === name) return this.close();
    this.name = name;
    this.#opener = opener;
    const close = h("button", { class: "quiet", type: "button", "aria-label": "Close", onclick: () => this.close() }, icon("cross"));
    fill(this.element, h("header", { class: "panel-head" }, h("h2", {}, title), close), h("div", { class: "panel-body" }, content));
    this.element.hidden = false;
    close.focus();
    return true;
  }

  close() {
    this.name = null;
    this.element.hidden = true;
    fill(this.element);
    this.#opener?.focus();
    return false;
  }
}
