/**
 * Link reference definitions, `[name]: address "title"`, and footnotes, `[^1]` and `[^1]: words`, of one text. Marks
 * of footnotes find their note by themselves: the address of the page stays.
 */

import { h } from "../dom/elements.js";
import { t } from "../dom/texts.js";
import { inline } from "./inline.js";
import { definitionsOf } from "./link_targets.js";

const MOST = 1_000,
  MOST_ASKED = 100;
const LONGEST = 500; // characters of an end that is looked at
const UNFINISHED = /^[ \t]*\[(?:[^\\[\]]|\\.){0,60}(?:\](?::[ \t]*\n?[ \t]*\S*(?:[ \t\n]+(?:["'(][^"')]*)?)?)?)?$/; // being written

const FEW = 50; // children
const MOST_BACKS = 20; // ways back of a note
const LIKELY = /^\w{1,20}$/; // `[^a-z]` is rather a pattern until there is such a note

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
    fill(element, inline(text, { refs: this }));
    if (learns && this.#asked.size) this.#unsure.push({ element, text, names: [...this.#asked].slice(0, MOST_ASKED) });
    return element;
  }

  /** Draws a paragraph that is being written, without the definitions that it begins with. */
  sketch(element, text) {
    const rest = this.take(text, false);
    const shown = rest.length < LONGEST && UNFINISHED.test(rest) ? "" : rest;
    fill(element, inline(shown, { refs: this, open: true }));
  }

  /** At the end of the text: draws again what names references and notes that were defined later. */
  settle() {
    const defined = (name) => (name[0] === "^" ? this.#notes.has(name.slice(1)) : this.has(name));
    for (const { element, text, names } of this.#unsure.splice(0)) {
      if (names.some(defined)) fill(element, inline(text, { refs: this }));
    }
    this.#notes.settle();
  }
}

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
    if (!this.has(name) && !LIKELY.test(name)) return null;
    if (!this.#numbers.has(name)) this.#numbers.set(name, this.#numbers.size + 1);
    const way = wayTo(() => this.#items.get(name));
    return h("sup", { class: "note-mark", dataset: { name } }, numbered(way, this.#numbers.get(name)));
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

  /** At the end: numbers by mention, ways back, and text again where a mark has no note. */
  settle() {
    const numbers = new Map(),
      still = [];
    for (const mark of this.element.querySelectorAll("sup.note-mark")) {
      const { name } = mark.dataset;
      if (!this.has(name)) {
        const block = mark.closest(".markdown-part > [dir]");
        if (block) still.push(block);
        block?.removeAttribute("dir"); // browsers would look for it with every mark that goes
        mark.replaceWith(`[^${name}]`);
        continue;
      }
      if (!numbers.has(name)) numbers.set(name, numbers.size + 1);
      numbered(mark.firstChild, numbers.get(name));
      this.#back(name, mark);
    }
    for (const block of still) block.setAttribute("dir", "auto");
    const list = this.#section?.firstChild;
    const cited = [...numbers.keys()].map((name) => this.#items.get(name));
    if (list) list.append(...new Set([...cited, ...list.children]));
    if (!list?.hasChildNodes()) this.#section?.remove();
  }

  #back(name, mark) {
    const item = this.#items.get(name);
    if (item.querySelectorAll(".note-back").length >= MOST_BACKS) return;
    const words = item.lastElementChild?.localName === "p" ? item.lastElementChild : item;
    const back = wayTo(() => mark.firstChild, { class: "note-back", "aria-label": t("markdown.footnote_back") });
    words.append(" ", back);
    back.textContent = "↩";
  }
}

/** Browsers look for the direction of a block again with each child that comes: here once for all. */
function fill(element, words) {
  const still = words.childNodes.length > FEW && element.hasAttribute("dir");
  if (still) element.removeAttribute("dir");
  element.replaceChildren(words);
  if (still) element.setAttribute("dir", "auto");
}

/** No button, which would stand in a line of its own where a line ends before it. */
function wayTo(find, props) {
  const go = () => {
    const found = find();
    if (found?.localName === "li") found.tabIndex = -1;
    found?.scrollIntoView({ block: "nearest" });
    found?.focus({ preventScroll: true });
  };
  const onkeydown = ({ key }) => key === "Enter" && go();
  return h("span", { ...props, role: "link", tabindex: 0, onclick: go, onkeydown });
}

function numbered(way, number) {
  way.textContent = number;
  way.setAttribute("aria-label", t("markdown.footnote", { number: String(number) }));
  return way;
}
