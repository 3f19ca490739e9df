/** Link reference definitions, `[name]: address "title"`, and the footnotes of one text. */

import { inline } from "./inline.js";
import { definitionsOf } from "./link_targets.js";

const MOST = 1_000,
  MOST_ASKED = 100;
const UNFINISHED = /^[ \t]*\[(?:[^\\[\]]|\\.){1,200}\]:[ \t]*\n?[ \t]*\S*(?:[ \t\n]+(?:["'(][^"')]*)?)?$/; // being written

/** A Map from names to `{url, title}`. The first definition of a name counts. */
export class References extends Map {
  #notes;
  #asked = new Set(); // undefined names in the text that was drawn last
  #unsure = []; // elements with such names

  constructor(notes) {
    super();
    this.#notes = notes;
  }

  get(name) {
    if (name && !this.has(name)) this.#asked.add(name);
    return super.get(name);
  }

  mark(name) {
    const mark = this.#notes.mark(name);
    if (!mark) this.#asked.add(`^${name}`);
    return mark;
  }

  /** Takes in the definitions that a complete paragraph begins with, and returns the rest. */
  take(text, learns) {
    if (text[0] !== "[") return text;
    const { found, rest } = definitionsOf(text);
    if (learns) for (const { name, ...one } of found) if (this.size < MOST && !this.has(name)) this.set(name, one);
    return rest;
  }

  /** Draws complete text. `learns`: it will not change any more, except for names that are defined later. */
  draw(element, text, learns) {
    this.#asked.clear();
    element.replaceChildren(inline(text, { refs: this }));
    if (learns && this.#asked.size) this.#unsure.push({ element, text, names: [...this.#asked].slice(0, MOST_ASKED) });
    return element;
  }

  /** Draws a paragraph that is being written, without the definitions that it begins with. */
  sketch(element, text) {
    const rest = this.take(text, false);
    element.replaceChildren(inline(UNFINISHED.test(rest) ? "" : rest, { refs: this, open: true }));
  }

  /** At the end of the text: draws again what names references and notes that were defined later. */
  settle() {
    const defined = (name) => (name[0] === "^" ? this.#notes.has(name.slice(1)) : this.has(name));
    for (const { element, text, names } of this.#unsure.splice(0)) {
      if (names.some(defined)) element.replaceChildren(inline(text, { refs: this }));
    }
    this.#notes.settle();
  }
}
