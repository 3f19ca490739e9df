/**
 * A virtual list of terminal lines: drawn in blocks; the browser lays out only those in view.
 * At most BLOCKS of them are on the page at a time; the others are inserted again when the reader asks for them.
 */

import { button, h } from "../dom/elements.js";
import { t } from "../dom/more_texts.js";
import { forEachInSlices } from "../dom/scheduling.js";
import { renderLines } from "./line_nodes.js";

export const LINES = 500; // of a block
export const BLOCKS = 40;
const STEP = 8; // blocks that are added at a time
const MAX_BEHIND = 20; // blocks that the reader is behind
const MAX_BLOCKS = 1_000; // blocks in memory: half a million lines
const FOUND = "tail-found"; // the highlight of a place that was searched for
const MOST_FOUND = 10_000; // places

export class LineWindow {
  #blocks = []; // {lines, drawn, element}
  #first = 0;
  #last = 0; // behind the last block that is on the page
  #dropped = 0;
  #made = 0;
  #found = null;
  #search = null; // {term, places, number, line, shown}: all places before that line of the block with that number
  #open = h("div", { class: "tail-block" });

  /** `box` scrolls. */
  constructor(box) {
    this.box = box;
    this.earlier = button(t("tail.earlier.button"), () => this.#showEarlier(), { class: "tail-more" });
    this.later = button(t("tail.later.button"), () => this.#showLater(), { class: "tail-more" });
    this.blocks = h("div", { class: "tail-lines" });
    box.replaceChildren(this.earlier, this.blocks, this.#open, this.later);
    this.draw(true);
  }

  /** Takes lines to be drawn; nothing is on the page before `draw`. */
  add(lines) {
    for (const line of lines) {
      let block = this.#blocks.at(-1);
      if (!block || block.lines.length === LINES) {
        this.#blocks.push((block = { number: ++this.#made, lines: [], drawn: 0, element: null }));
      }
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

  /**
   * Shows the next line with the text, or the one before, from the place found last; `fresh`: the text is another;
   * `keep`: shows nothing if a place was shown before. Resolves with `{at, of, moved}`, the number of this place
   * and of all, and whether it is shown only now; with nothing if the search was ended.
   */
  async find(term, { back = false, fresh = false, keep = false } = {}) {
    if (!keep) this.#clearFound();
    const search = this.#searchFor(term.toLowerCase());
    const isThere = ({ block }) => block.number >= this.#blocks[0].number; // the others were dropped
    search.places = search.places.filter(isThere); // only these count as MOST_FOUND
    const isWanted = () => this.#search === search;
    await forEachInSlices([...this.#blocks], (block) => addPlaces(search, block), isWanted);
    if (!isWanted()) return undefined;
    const places = (search.places = search.places.filter(isThere));
    if (!places.length) return { at: 0, of: 0, moved: false };
    if (keep && search.shown) {
      const kept = Math.max(0, places.indexOf(this.#found)); // of one that was dropped, the next: the reader stays
      this.#found = places[kept];
      return { at: kept + 1, of: places.length, moved: false };
    }
    const behind = (one, other) =>
      one.block.number - other.block.number || one.line - other.line || one.column - other.column;
    const from = fresh || keep ? null : this.#found;
    const next = from && places.findIndex((place) => (back ? behind(place, from) >= 0 : behind(place, from) > 0));
    let at = next ?? 0;
    if (from && back) at = (next < 0 ? places.length : next) - 1;
    at = (at + places.length) % places.length;
    if (from && !back && next < 0) at = 0;
    this.#found = places[at];
    search.shown = true;
    this.#showPlace(places[at], term.length);
    return { at: at + 1, of: places.length, moved: true };
  }

  endSearch() {
    this.#search = null;
    this.#clearFound();
  }

  #clearFound() {
    CSS.highlights?.delete(FOUND);
  }

  /** The search of that term so far: lines never change, so that none is searched twice. */
  #searchFor(term) {
    if (this.#search?.term !== term) this.#search = { term, places: [], number: 0, line: 0, shown: false };
    return this.#search;
  }

  /** Puts the block of a place into the window, marks the place and scrolls to it. */
  #showPlace({ block, line, column }, length) {
    const at = this.#blocks.indexOf(block);
    if (at < 0) return;
    if (at < this.#first || at >= this.#last) {
      this.#first = Math.max(0, at - STEP);
      this.#last = Math.min(this.#blocks.length, this.#first + BLOCKS);
      this.#place();
    }
    const begin = block.lines.slice(0, line).reduce((sum, spans) => sum + textOfLine(spans).length + 1, column);
    const range = rangeOf(block.element, begin, begin + length);
    CSS.highlights?.set(FOUND, new Highlight(range));
    const { top, bottom } = range.getBoundingClientRect();
    const box = this.box.getBoundingClientRect();
    this.box.scrollTop += (top + bottom) / 2 - (box.top + box.bottom) / 2;
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

const textOfLine = (spans) => spans.map(({ text }) => text).join("");

/** Adds the places in those lines of a block that were not searched yet. */
function addPlaces(search, block) {
  const { term, places } = search;
  if (block.number < search.number || places.length >= MOST_FOUND) return;
  const begin = block.number === search.number ? search.line : 0;
  for (let line = begin; line < block.lines.length; line++) {
    const text = textOfLine(block.lines[line]).toLowerCase();
    for (let column = text.indexOf(term); column >= 0; column = text.indexOf(term, column + term.length)) {
      places.push({ block, line, column });
    }
  }
  Object.assign(search, { number: block.number, line: block.lines.length });
}

/** The characters from `begin` to `end` of an element's text. */
function rangeOf(element, begin, end) {
  const range = new Range();
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  let before = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const after = before + node.length;
    if (begin >= before && begin <= after) range.setStart(node, begin - before);
    if (end <= after) {
      range.setEnd(node, end - before);
      break;
    }
    before = after;
  }
  return range;
}
