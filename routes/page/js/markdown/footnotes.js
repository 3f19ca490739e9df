/**
 * Footnotes: `[^1]` in the text, `[^1]: words` on a line of its own. The notes stand behind the text, in the order in
 * which they are mentioned. Marks are buttons that find their note themselves: no address of the page changes, and
 * notes of different messages have nothing in common.
 */

import { h } from "../dom/elements.js";
import { t } from "../dom/texts.js";

export const MARK = /\[\^([^\s[\]^]{1,80})\](?!\()/y;
export const NOTE = /^\[\^([^\s[\]^]{1,80})\]:[ \t]*/;
const SURE = /^\d{1,3}$/; // `[^a-z]` is rather a pattern until there is such a note

export class Footnotes {
  #items = new Map(); // by name
  #numbers = new Map();
  #section = null;

  constructor(element) {
    this.element = element;
  }

  has = (name) => this.#items.has(name);

  /** The mark of a note that is there or, while the text still grows, probably will be; otherwise null. */
  mark(name) {
    if (!this.has(name) && !SURE.test(name)) return null;
    if (!this.#numbers.has(name)) this.#numbers.set(name, this.#numbers.size + 1);
    const number = this.#numbers.get(name);
    const go = () => reach(this.#items.get(name));
    const button = h("button", { type: "button", onclick: go }, number);
    return h("sup", { class: "note", dataset: { name } }, named(button, number));
  }

  /** Adds a note. Returns how to take it back, its element included. */
  add(name, item) {
    if (!this.#section) {
      this.#section = h("section", { class: "notes", "aria-label": t("markdown.footnotes") }, h("ol"));
      this.element.append(this.#section);
    }
    this.#section.firstChild.append(item);
    const first = !this.has(name);
    if (first) this.#items.set(name, item);
    return () => {
      item.remove();
      if (first) this.#items.delete(name);
    };
  }

  /** At the end of the text: numbers by mention, ways back, and text again where a mark has no note. */
  settle() {
    const numbers = new Map(),
      marks = this.element.querySelectorAll("sup.note");
    for (const mark of marks) {
      const { name } = mark.dataset;
      if (!this.has(name)) {
        mark.replaceWith(`[^${name}]`);
        continue;
      }
      if (!numbers.has(name)) numbers.set(name, numbers.size + 1);
      named(mark.firstChild, numbers.get(name));
      this.#back(name, mark);
    }
    const list = this.#section?.firstChild;
    const cited = [...numbers.keys()].map((name) => this.#items.get(name));
    if (list) list.append(...new Set([...cited, ...list.children]));
    if (!list?.hasChildNodes()) this.#section?.remove();
  }

  #back(name, mark) {
    const item = this.#items.get(name);
    const words = item.lastElementChild?.localName === "p" ? item.lastElementChild : item;
    const label = t("markdown.footnote_back");
    const go = () => reach(mark.firstChild);
    words.append(" ", h("button", { type: "button", class: "note-back", "aria-label": label, onclick: go }, "↩"));
  }
}

function named(button, number) {
  button.textContent = number;
  button.setAttribute("aria-label", t("markdown.footnote", { number }));
  return button;
}

function reach(element) {
  if (!element) return;
  if (element.localName === "li") element.tabIndex = -1;
  element.scrollIntoView({ block: "nearest" });
  element.focus({ preventScroll: true });
}
