/** What `[words][name]` leads to, where a line `[name]: address` says so; such lines stay to be seen. */

import { inline, nameOf } from "./inline.js";

const LINE = /^ {0,3}\[([^[\]]{1,200})\]:[ \t]*<?([^\s<>]+)/;
const MOST = 1_000;

/** A Map from names to addresses. The first line that explains a name counts. */
export class References extends Map {
  #unsure = []; // paragraphs with brackets: what they name may be explained later

  /** Reads a paragraph that is whole. */
  learn(element, text) {
    if (!text.includes("[")) return;
    for (const line of text.split("\n")) {
      const [, name, url] = LINE.exec(line) ?? [];
      if (name && this.size < MOST && !this.has(nameOf(name))) this.set(nameOf(name), url);
    }
    this.#unsure.push({ element, text });
  }

  /** Nothing more is explained: draws again what may lead somewhere now. */
  settle() {
    const unsure = this.#unsure.splice(0);
    if (!this.size) return;
    for (const { element, text } of unsure) element.replaceChildren(inline(text, { refs: this }));
  }
}
