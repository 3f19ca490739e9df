/**
 * A virtual list of terminal lines: drawn in blocks; the browser lays out only those in view.
 * At most BLOCKS of them are on the page at a time; the others are inserted again when the reader asks for them.
 */

import { PLAIN } from "./ansi_style.js";
import { h } from "../dom/elements.js";
import { t } from "../dom/texts.js";
import { classesOf } from "./ansi_colours.js";

export const LINES = 500; // of a block
export const BLOCKS = 40;
const STEP = 8; // blocks that are added at a time
const MAX_BEHIND = 20; // blocks that the reader is behind
const MAX_BLOCKS = 1_000; // blocks in memory: half a million lines

export class LineWindow {
  #blocks = []; // {lines, drawn, element}
  #first = 0;
  #last = 0; // behind the last block that is on the page
  #dropped = 0;
  #open = h("div", { class: "tail-block" });

  /** `box` scrolls. */
  constructor(box) {
    this.box = box;
    this.earlier = h(
      "button",
      { type: "button", class: "tail-more", onclick: () => this.#showEarlier() },
      t("tail.earlier.button"),
    );
    this.later = h(
      "button",
      { type: "button", class: "tail-more", onclick: () => this.#showLater() },
      t("tail.later.button"),
    );
    this.blocks = h("div", { class: "tail-lines" });
    box.replaceChildren(this.earlier, this.blocks, this.#open, this.later);
    this.draw(true);
  }

  /** Takes lines to be drawn; nothing is on the page before `draw`. */
  add(lines) {
    for (const line of lines) {
      let block = this.#blocks.at(-1);
      if (!block || block.lines.length === LINES) this.#blocks.push((block = { lines: [], drawn: 0, element: null }));
      block.lines.push(line);
    }
    const over = this.#blocks.length - MAX_BLOCKS;
    if (over > 0) this.#drop(over);
  }

  /** Draws new lines and `open`, the incomplete one; `following`: the end is in view. */
  draw(following, open = []) {
    const end = this.#blocks.length;
    if (following) {
      if (end - this.#last > MAX_BEHIND) this.#first = end - STEP; // skips the lines between
      this.#last = end;
      this.#first = Math.max(this.#first, end - BLOCKS);
    } else if (end - this.#first <= BLOCKS) {
      this.#last = end;
    }
    this.#place();
    this.#drawOpen(open);
  }

  get lines() {
    return this.#blocks.flatMap(({ lines }) => lines);
  }

  #drawOpen(open) {
    const atEnd = this.#last === this.#blocks.length;
    const shown = atEnd ? open : [];
    if (shown.length || !this.#open.hidden) this.#open.replaceChildren(renderLines([shown], ""));
    this.#open.hidden = !shown.length;
  }

  #showEarlier() {
    const before = this.box.scrollHeight - this.box.scrollTop;
    this.#first = Math.max(0, this.#first - STEP);
    this.#last = Math.min(this.#last, this.#first + BLOCKS);
    this.#place();
    this.box.scrollTop = this.box.scrollHeight - before;
  }

  #showLater() {
    this.#last = Math.min(this.#blocks.length, this.#last + STEP);
    this.#first = Math.max(this.#first, this.#last - BLOCKS);
    const mark = this.#blocks[this.#last - STEP]?.element;
    this.#place();
    mark?.nextSibling?.scrollIntoView({ block: "start" });
  }

  #drop(blocks) {
    for (const { element } of this.#blocks.splice(0, blocks)) element?.remove();
    this.#dropped += blocks * LINES;
    this.#first = Math.max(0, this.#first - blocks);
    this.#last = Math.max(this.#first, this.#last - blocks);
  }

  /** Puts the blocks of the window on the page, and takes the others off it. */
  #place() {
    this.#blocks.forEach((block, at) => {
      if (at >= this.#first && at < this.#last) return;
      block.element?.remove();
      Object.assign(block, { element: null, drawn: 0 });
    });
    let before = null;
    for (const block of this.#blocks.slice(this.#first, this.#last)) {
      if (!block.element) this.#enter(block, before);
      this.#fill(block);
      before = block.element;
    }
    this.#showCounts();
  }

  #enter(block, before) {
    block.element = h("div", { class: "tail-block" });
    if (before) before.after(block.element);
    else this.blocks.prepend(block.element);
  }

  #fill(block) {
    const fresh = block.lines.length - block.drawn;
    if (!fresh) return;
    block.element.append(renderLines(block.lines.slice(block.drawn), "\n"));
    block.drawn = block.lines.length;
    block.element.classList.toggle("full", block.drawn === LINES);
  }

  #showCounts() {
    const above = this.#first * LINES;
    const below = this.#blocks.slice(this.#last).reduce((sum, { lines }) => sum + lines.length, 0);
    this.earlier.hidden = !above;
    this.later.hidden = !below;
    const gone = this.#dropped ? `, ${t("tail.discarded", { count: this.#dropped })}` : "";
    if (above) this.earlier.textContent = t("tail.earlier", { count: above }) + gone;
    if (below) this.later.textContent = t("tail.later", { count: below });
  }
}

/** Lines as nodes: neighbours that look the same become one text. */
export function renderLines(lines, end = "\n") {
  const nodes = document.createDocumentFragment();
  let style = null;
  let text = "";
  const flush = () => {
    const names = text && style ? classesOf(style) : "";
    if (text) nodes.append(names ? h("span", { class: names }, text) : text);
    text = "";
  };
  for (const spans of lines) {
    for (const span of spans) {
      if (style !== span.style) flush();
      style = span.style;
      text += span.text;
    }
    if (end && style !== PLAIN) {
      flush();
      style = null;
    }
    text += end;
  }
  flush();
  return nodes;
}
