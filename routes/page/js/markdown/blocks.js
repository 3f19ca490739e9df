/**
 * The blocks of Markdown, line by line, opened and closed as CommonMark does, and appended to the page as they arrive;
 * closed blocks are never parsed again. `trial()` draws an incomplete line; `undo()` removes it again.
 */

import { CodeView } from "../text/code.js";
import { h } from "../dom/elements.js";
import { cutWithin, Line } from "./line.js";
import { Footnotes, References } from "./references.js";
import { GOES_ON, NOTHING, quoteElement, STARTS, taskBox } from "./block_starts.js";
import { alignments, cells, row, tableOf } from "./tables.js";

const DEEPEST = 40; // lists, items and quotes in each other; deeper ones stay as they were written
const PART = 30; // blocks per part: parts outside the viewport are not laid out
const LONGEST = 6_000; // characters of a paragraph that is drawn as one

export class Blocks {
  #open; // from the root to the innermost block
  #changes = null; // how to undo the drawing of a trial
  #levels = []; // of the last heading and of those above it
  #notes;
  #refs;

  constructor(element) {
    this.#notes = new Footnotes(element);
    this.#refs = new References(this.#notes);
    const part = h("div", { class: "markdown-part" });
    element.append(part);
    this.#open = [{ kind: "root", element: part, container: true, room: PART }];
  }

  get top() {
    return this.#open.at(-1);
  }

  /** Takes in a line. `end` is its end, or nothing where `more` of it comes. */
  line(text, end) {
    const line = new Line(text);
    const kept = this.#keep(line);
    if (kept === null) return; // the line has closed its block
    const inner = this.#open[kept - 1],
      innermost = kept === this.#open.length;
    if (innermost && inner.verbatim) this.#verbatim(line, end);
    else if (innermost && inner.kind === "table") this.#addRow(line.words);
    else this.#begin(line, kept, end);
  }

  /** The rest of the previous line: long lines arrive in pieces. */
  more(text, end) {
    const { top } = this;
    if (top.verbatim) return this.#write(top, text + end);
    if (top.kind !== "paragraph") this.#paragraph("");
    this.top.text += text;
    return this.#split();
  }

  trial(draw) {
    const before = this.#open.map((block) => ({ ...block }));
    const changes = (this.#changes = []);
    draw();
    this.#changes = null;
    this.undo = () => {
      for (const back of changes.reverse()) back();
      this.#open = before;
      this.undo = () => undefined;
    };
  }

  undo = () => undefined;

  /** Draws the text that was added to the open block. */
  draw() {
    const { top } = this;
    if (top.kind === "paragraph") this.#refs.sketch(top.element, top.text);
    top.code?.draw();
  }

  end() {
    this.undo();
    this.#close(1);
    this.#refs.settle();
  }

  /** The number of open blocks that continue in the line; null if the line only closes the innermost. */
  #keep(line) {
    let kept = 1;
    for (; kept < this.#open.length; kept += 1) {
      const goes = GOES_ON[this.#open[kept].kind](line, this.#open[kept]);
      if (goes === "end") {
        this.#close(kept);
        return null;
      }
      if (!goes) break;
    }
    return kept;
  }

  #begin(line, kept, end) {
    let depth = kept;
    for (;;) {
      const start = this.#start(line, depth);
      if (start.kind === "nothing") break;
      // The innermost is closed by the block that replaces it.
      if (!start.instead) this.#close(this.#open[depth - 1].kind === "paragraph" ? depth - 1 : depth);
      OPENS[start.kind](this, { ...start, line, end });
      depth = this.#open.length;
      if (!start.container) return;
    }
    this.#text(line, depth, kept);
  }

  /** The block that starts with this line at this depth: the first match of STARTS. */
  #start(line, depth) {
    if (depth > DEEPEST) return NOTHING;
    const inner = this.#open[depth - 1],
      lazy = this.top.kind === "paragraph";
    const around = { inner, lazy, folds: () => this.#open.some(({ kind }) => kind === "details") };
    for (const read of STARTS) {
      const start = read(line, around);
      if (start) return start;
    }
    return NOTHING;
  }

  #text(line, depth, kept) {
    if (this.top.kind === "paragraph" && (depth === this.#open.length || !line.blank)) {
      this.top.text += `\n${line.rest}`;
      return this.#split();
    }
    this.#close(depth);
    if (!line.blank) this.#paragraph(line.words);
    else if (depth === kept) this.#blank();
  }

  /** A blank line in a list makes the list loose if more follows. In a quote it is none of the lists around that. */
  #blank() {
    for (const block of this.#open.slice(this.#open.findLastIndex(({ kind }) => kind === "quote") + 1))
      if (block.kind === "list" || block.kind === "item") block.gap = true;
  }

  #loosen() {
    const { top } = this;
    const list = top.gap && (top.kind === "list" ? top.element : top.element.parentNode);
    if (list && !list.classList.contains("loose")) {
      list.classList.add("loose");
      this.#changes?.push(() => list.classList.remove("loose"));
    }
    for (const block of this.#open) block.gap = false;
  }

  #paragraph(text) {
    this.#push({ kind: "paragraph", element: h("p"), text });
  }

  /** A long paragraph is continued in another one, so that the cost of each piece is bounded. */
  #split() {
    const { top } = this;
    if (top.text.length <= LONGEST) return;
    const at = cutWithin(top.text, LONGEST);
    const rest = top.text.slice(at);
    top.text = top.text.slice(0, at);
    this.#close(this.#open.length - 1);
    this.#paragraph(rest);
    this.top.element.classList.add("on");
    this.#split();
  }

  #push(block) {
    if (this.top.kind === "list" && block.kind !== "item") this.#close(this.#open.length - 1);
    this.#loosen();
    const parent = this.top;
    parent.filled = true;
    this.#append(parent, block.outer ?? block.element);
    if (parent.kind === "root" && !block.code) (block.outer ?? block.element).setAttribute("dir", "auto");
    this.#open.push(block);
  }

  #append(parent, element) {
    if (parent.kind === "root") this.#turn(parent);
    parent.element.append(element);
    this.#changes?.push(() => element.remove());
  }

  /** Starts a new part if this one is full. */
  #turn(root) {
    root.room -= 1;
    if (root.room >= 0) return;
    const part = h("div", { class: "markdown-part" });
    root.element.after(part);
    this.#changes?.push(() => part.remove());
    root.element = part;
    root.room = PART - 1;
  }

  #remove(element) {
    const parent = element.parentNode;
    element.remove();
    this.#changes?.push(() => parent.append(element));
  }

  #write(block, text) {
    if (!this.#changes) return block.code.add(text);
    block.code.trial(text);
    return this.#changes.push(() => block.code.trial(""));
  }

  /** All blocks but the first `count`. */
  #close(count) {
    while (this.#open.length > count) {
      const block = this.#open.pop();
      if (block.kind === "paragraph") this.#settle(block.element, block.text);
      else if (block.code && !this.#changes) block.code.close();
    }
  }

  /** A complete paragraph: definitions are not part of it. */
  #settle(element, text) {
    const rest = this.#refs.take(text, !this.#changes);
    if (rest.trim()) this.#say(element, rest);
    else this.#remove(element);
  }

  /** Draws complete text into an element. */
  #say = (element, text) => this.#refs.draw(element, text, !this.#changes);

  openQuote({ alert, width, line }) {
    line.take(width);
    line.skip(1);
    this.#push({ kind: "quote", container: true, element: quoteElement(alert) });
  }

  openItem({ ordered, mark, from, width, line }) {
    const indent = line.indent;
    line.take(width);
    const wide = line.blank || line.indent > 4 ? 1 : line.indent;
    line.skip(wide);
    let list = this.top;
    if (list.kind !== "list" || list.mark !== mark) {
      const element = ordered ? h("ol", { start: from === 1 ? null : from }) : h("ul");
      list = { kind: "list", container: true, mark, ordered, element };
      this.#push(list);
    }
    const task = /^\[([ xX])\][ \t]+(?=\S)/.exec(line.words);
    if (task) line.take(task[0].length);
    const element = h("li", { class: task && "task" }, task && taskBox(task[1] !== " "));
    this.#push({ kind: "item", container: true, ordered, element, offset: indent + width + wide });
  }

  /** Levels of the page are not skipped where a text skips its own, or begins below its first: only the size differs. */
  openHeading({ level, text }) {
    const before = this.#levels;
    this.#levels = [...before.filter((one) => one < level), level];
    this.#changes?.push(() => (this.#levels = before));
    const [kind, size] = [`h${Math.min(6, this.#levels.length + 2)}`, `size-${level}`];
    this.#push({ kind: "heading", element: this.#say(h(kind, { class: size }), text) });
    this.#open.pop();
  }

  /** The paragraph turns out to be a heading. */
  openUnderlined({ level, text }) {
    const paragraph = this.#open.pop();
    this.#refs.take(paragraph.text, !this.#changes);
    this.#remove(paragraph.element);
    this.openHeading({ level, text });
  }

  openDetails({ width, line }) {
    line.take(width);
    this.#push({ kind: "details", container: true, element: h("details") });
  }

  openSummary({ text, width, line }) {
    line.take(width);
    this.#push({ kind: "summary", element: this.#say(h("summary"), text) });
    this.#open.pop();
  }

  endDetails() {
    this.#close(this.#open.findLastIndex(({ kind }) => kind === "details"));
  }

  /** A note stands behind the text, wherever it was written. */
  openNote({ name, width, line }) {
    line.take(width);
    this.#close(1);
    const item = h("li", { dir: "auto" });
    const back = this.#notes.add(name, item);
    this.#changes?.push(back);
    this.#open.push({ kind: "note", container: true, element: item });
  }

  openRule() {
    this.#push({ kind: "rule", element: h("hr") });
    this.#open.pop();
  }

  openCode({ fence, indent, language, formula, view, line, end }) {
    const code = view ?? new CodeView(language);
    const kind = fence ? "fence" : formula ? "formula" : "indented";
    this.#push({ kind, verbatim: true, code, element: code.element, fence, indent, formula });
    if (!fence) this.#verbatim(line, end);
  }

  /** A line of verbatim text. */
  #verbatim(line, end) {
    const { top } = this,
      words = line.words.trimEnd();
    if (top.kind === "indented" && line.blank && end) {
      top.blanks = `${top.blanks ?? ""}${line.rest}${end}`; // of the code only if more of it follows
      return;
    }
    this.#write(top, (top.blanks ?? "") + line.rest + end);
    top.blanks = "";
    if (top.formula && words.length >= (top.begun ? 2 : 4) && words.endsWith(top.formula))
      this.#close(this.#open.length - 1);
    top.begun = true;
  }

  /** The paragraph's last line turns out to be the head of a table. */
  openTable({ columns }) {
    const paragraph = this.#open.pop();
    const cut = paragraph.text.lastIndexOf("\n");
    this.#settle(paragraph.element, paragraph.text.slice(0, Math.max(0, cut)));
    const aligned = alignments(columns),
      { box, head, body } = tableOf();
    head.append(row("th", cells(paragraph.text.slice(cut + 1)), aligned, this.#say));
    this.#push({ kind: "table", element: body, outer: box, aligned });
  }

  #addRow(text) {
    this.#append(this.top, row("td", cells(text), this.top.aligned, this.#say));
  }
}

const OPENS = {
  quote: (blocks, start) => blocks.openQuote(start),
  item: (blocks, start) => blocks.openItem(start),
  heading: (blocks, start) => blocks.openHeading(start),
  underlined: (blocks, start) => blocks.openUnderlined(start),
  rule: (blocks) => blocks.openRule(),
  details: (blocks, start) => blocks.openDetails(start),
  summary: (blocks, start) => blocks.openSummary(start),
  detailsEnd: (blocks) => blocks.endDetails(),
  note: (blocks, start) => blocks.openNote(start),
  code: (blocks, start) => blocks.openCode(start),
  table: (blocks, start) => blocks.openTable(start),
};
