/** Link reference definitions, `[name]: address`. The definitions themselves stay visible. */

import { inline, nameOf } from "./inline.js";

const LINE = /^ {0,3}\[([^[\]]{1,200})\]:[ \t]*<?([^\s<>]+)/;
const MOST = 1_000,
  MOST_ASKED = 100;

/** A Map from names to addresses. The first line that explains a name counts. */
export class References extends Map {
  #asked = new Set(); // undefined names in the paragraph that was drawn last
  #unsure = []; // paragraphs with such names

  get(name) {
    if (!this.has(name)) this.#asked.add(name);
    return super.get(name);
  }

  /** Draws a complete paragraph and collects its definitions. */
  draw(element, text, learns) {
    this.#asked.clear();
    element.replaceChildren(inline(text, { refs: this }));
    if (!learns || !text.includes("[")) return;
    if (this.#asked.size) this.#unsure.push({ element, text, names: [...this.#asked].slice(0, MOST_ASKED) });
    for (const line of text.split("\n")) {
      const [, name, url] = LINE.exec(line) ?? [];
      if (name && this.size < MOST && !this.has(nameOf(name))) this.set(nameOf(name), url);
    }
  }

  /** At the end of the text: draws paragraphs again whose references were defined later. */
  settle() {
    const unsure = this.#unsure.splice(0);
    for (const { element, text, names } of unsure) {
      if (names.some((name) => this.has(name))) element.replaceChildren(inline(text, { refs: this }));
    }
  }
}
