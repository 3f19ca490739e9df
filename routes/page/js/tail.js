/** The last lines of what a process writes, as a terminal would show them; opened, the whole of it. */

import { h } from "./dom.js";

export class Tail {
  /** `whole(after)` reads more of the whole: `{text, from, next, characters, done}`, see GET /runs/{run}/calls/{call}/output. */
  constructor({ label, whole = null }) {
    this.whole = whole;
    this.element = h("pre", { class: "tail", tabindex: 0, "aria-label": label });
  }

  /** `{tail: [...], lines, bytes}` of a progress event or a job. */
  show({ tail }) {
    this.element.textContent = tail.join("\n");
  }

  /** Nothing more comes; `text` is what is left to show, if it is known. */
  end(text) {
    if (text !== undefined) this.element.textContent = text;
  }
}
