/**
 * Markdown as it streams in, as elements. Lines are read once; only the paragraph and the line that are being written
 * are drawn again. Why no library: they read whole texts, so that each delta costs what all of the text costs and much
 * of what stands on the page is taken back. CommonMark and GitHub's additions; docs/markdown.md lists deviations.
 */

import { Blocks } from "./blocks.js";
import { h } from "../dom/elements.js";

const LONGEST = 4_000; // characters of a line that are read at once
const FEW = 500; // characters
// The first signs of a line may become anything, and the first ones in a quote an alert.
const UNDECIDED = /^(?:[\s>]*(?:[-*+_=~`#|$\\]{1,3}|\d{1,9}[.)]?)?\s*|[\s\d>.)*+-]*>\s*\[(?:![a-z]{0,9})?)$/i;

export class Markdown {
  #blocks;
  #line = ""; // the last line, as far as it has come
  #begun = false; // whether the beginning of a long line was already processed
  #returned = false; // whether the last character was a carriage return

  constructor(name = "markdown") {
    this.element = h("div", { class: name });
    this.#blocks = new Blocks(this.element);
  }

  /** Takes in the next piece of the text; `draw` shows it. */
  write(text) {
    this.#blocks.undo();
    const given = this.#returned && text.startsWith("\n") ? text.slice(1) : text;
    if (text) this.#returned = text.endsWith("\r");
    const lines = given.replace(/\r\n?/g, "\n").split("\n");
    const last = lines.pop();
    this.#still(() => lines.forEach((line) => this.#end(line)));
    this.#line += last;
    this.#shorten();
  }

  /** Shows all that was written, the line that has no end yet included. */
  draw() {
    this.#blocks.undo();
    if (this.#begun || !UNDECIDED.test(this.#line)) this.#blocks.trial(() => this.#take(this.#line, ""));
    this.#blocks.draw();
  }

  /** Nothing more comes. */
  end() {
    this.#blocks.undo();
    if (this.#line) this.#end("");
    this.#blocks.end();
  }

  /**
   * Browsers look for the first letter of a block, which says its direction, whenever something is put in: here once
   * for many lines. Where it begins with one that would cost more: the styles of all that is in the block.
   */
  #still(take) {
    const block = this.element.lastElementChild?.lastElementChild;
    const first = block && document.createTreeWalker(block, NodeFilter.SHOW_TEXT).nextNode();
    const dir = first && !/\p{L}/u.test(first.data.slice(0, FEW)) && block.getAttribute("dir");
    if (dir) block.removeAttribute("dir");
    take();
    if (dir) block.setAttribute("dir", dir);
  }

  #end(rest) {
    this.#line += rest;
    this.#shorten();
    this.#take(this.#line, "\n");
    this.#line = "";
    this.#begun = false;
  }

  #shorten() {
    while (this.#line.length > LONGEST) {
      const pair = /[\ud800-\udbff]/.test(this.#line[LONGEST - 1]) ? 1 : 0;
      this.#take(this.#line.slice(0, LONGEST - pair), "");
      this.#begun = true;
      this.#line = this.#line.slice(LONGEST - pair);
    }
  }

  #take(text, end) {
    if (this.#begun) this.#blocks.more(text, end);
    else this.#blocks.line(text, end);
  }
}

/** A whole text as an element. */
export function markdownElement(text) {
  const view = new Markdown();
  view.write(text);
  view.end();
  return view.element;
}
