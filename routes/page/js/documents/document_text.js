/** The text of a document as elements, while it is written and afterwards: Markdown, code, or plain text. */

import { h, onNextFrame } from "../dom/elements.js";
import { Markdown } from "../markdown/markdown.js";
import { CodeView } from "../text/code.js";
import { escapeProse } from "../text/escape_invisible.js";

/** The address of a document on the server. */
export const path = (id) => `/documents/${encodeURIComponent(id)}`;

/** The document as it is; `add` text while it is written, `close` at its end. */
export class DocumentText {
  #view;

  constructor(kind) {
    this.#view = VIEWS.get(kind)?.() ?? new CodeView(kind);
    this.element = this.#view.element;
  }

  add(text) {
    this.#view.add(text);
    onNextFrame(this.#draw);
  }

  #draw = () => this.#view.draw();

  close() {
    this.#view.close();
  }
}

function markdownView() {
  const markdown = new Markdown();
  return {
    element: markdown.element,
    add: (text) => markdown.write(text),
    draw: () => markdown.draw(),
    close: () => markdown.end(),
  };
}

function plainView() {
  const element = h("p", { class: "user-text", dir: "auto" });
  return { element, add: (text) => element.append(escapeProse(text)), draw: () => undefined, close: () => undefined };
}

const VIEWS = new Map(Object.entries({ markdown: markdownView, plain: plainView }));
