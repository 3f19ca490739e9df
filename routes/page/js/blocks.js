/**
 * The blocks of Markdown, line by line, as CommonMark opens and closes them, put into the page as they come: what
 * stands is never read again. `trial()` draws a line that is not whole yet; `undo()` takes it back.
 */

import { CodeView } from "./code.js";
import { h } from "./dom.js";
import { inline } from "./inline.js";
import { Line } from "./lines.js";
import { References } from "./references.js";
import { GOES_ON, NOTHING, STARTS, marked } from "./starts.js";
import { alignments, cells, row, tableOf } from "./tables.js";

const DEEPEST = 40; // lists, items and quotes in each other; deeper ones stay as they were written
const LONGEST = 6_000; // characters of a paragraph that is drawn as one

export class Blocks {
  #open; // from the root to the innermost block
  #changes = null; // how to take back what a trial has drawn
  #refs = new References();

  constructor(element) {
    this.#open = [{ kind: "root", element, container: true }];
  }

  get top() {
    return this.#open.at(-1);
  }

  /** Takes in a line. `end` is its end, or nothing where `more` of it comes. */
  line(text, end) {
    const line = new Line(text);
    const kept = this.#keep(line);
    if (kept === null) return; // it has closed the block that it belongs to
    const inner = this.#open[kept - 1],
      innermost = kept === this.#open.length;
    if (innermost && inner.verbatim) this.#verbatim(line, end);
    else if (innermost && inner.kind === "table") this.#addRow(line.words);
    else this.#begin(line, kept, end);
  }

  /** More of the line that was taken in last: lines may be longer than what is read at once. */
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

  /** Draws what has come to the open block. */
  draw() {
    const { top } = this;
    if (top.kind === "paragraph") top.element.replaceChildren(inline(top.text, { refs: this.#refs, open: true }));
    top.code?.draw();
  }

  end() {
    this.undo();
    this.#close(1);
    this.#refs.settle();
  }

  /** How many of the open blocks the line goes on in; null where it only ends the innermost. */
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
      // The innermost is closed by what replaces it.
      if (!start.instead) this.#close(this.#open[depth - 1].kind === "paragraph" ? depth - 1 : depth);
      OPENS[start.kind](this, start, line, end);
      depth = this.#open.length;
      if (!start.container) return;
    }
    this.#text(line, depth);
  }

  /** What the line begins in the block at this depth: the first row of STARTS that knows it. */
  #start(line, depth) {
    if (depth > DEEPEST) return NOTHING;
    const around = { inner: this.#open[depth - 1], lazy: this.top.kind === "paragraph" };
    for (const read of STARTS) {
      const start = read(line, around);
      if (start) return start;
    }
    return NOTHING;
  }

  #text(line, depth) {
    const lazy = depth < this.#open.length && !line.blank && this.top.kind === "paragraph";
    if (lazy || (depth === this.#open.length && this.top.kind === "paragraph")) return this.#addLine(line.rest);
    this.#close(depth);
    if (line.blank) return this.#blank();
    return this.#paragraph(line.words);
  }

  #addLine(text) {
    this.top.text += `\n${text}`;
    this.#split();
  }

  /** A blank line in a list: what comes behind it stands apart. */
  #blank() {
    for (const block of this.#open) if (block.kind === "list" || block.kind === "item") block.gap = true;
  }

  #loosen() {
    const { top } = this;
    const list = top.gap && (top.kind === "list" ? top.element : top.element.parentNode);
    if (list && !list.classList.contains("loose")) {
      this.#change(
        () => list.classList.add("loose"),
        () => list.classList.remove("loose"),
      );
    }
    for (const block of this.#open) block.gap = false;
  }

  #paragraph(text) {
    this.#push({ kind: "paragraph", element: h("p"), text });
  }

  /** A paragraph that has become long goes on in another, so that no piece costs more than the one before. */
  #split() {
    const { top } = this;
    if (top.text.length <= LONGEST) return;
    const half = LONGEST / 2;
    const cut = Math.max(top.text.lastIndexOf("\n", LONGEST), top.text.lastIndexOf(" ", LONGEST));
    const at = cut > half ? cut + 1 : LONGEST;
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
    this.#change(
      () => parent.element.append(element),
      () => element.remove(),
    );
  }

  #remove(element) {
    const parent = element.parentNode;
    this.#change(
      () => element.remove(),
      () => parent.append(element),
    );
  }

  #change(make, back) {
    make();
    this.#changes?.push(back);
  }

  #write(block, text) {
    if (!this.#changes) return block.code.add(text);
    block.code.trial(text);
    return this.#changes.push(() => block.code.trial(""));
  }

  /** Closes all blocks but the first `count`. */
  #close(count) {
    while (this.#open.length > count) {
      const block = this.#open.pop();
      if (block.kind === "paragraph") this.#finish(block);
      else if (block.code && !this.#changes) block.code.close();
    }
  }

  #finish({ element, text }) {
    element.replaceChildren(inline(text, { refs: this.#refs }));
    if (this.#changes) return;
    this.#refs.learn(element, text);
  }

  openQuote(start, line) {
    line.take(1);
    line.skip(1);
    this.#push({ kind: "quote", container: true, element: h("blockquote") });
  }

  openItem({ ordered, mark, from, width }, line) {
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
    const element = h("li", { class: task && "task" }, task && marked(task[1] !== " "));
    this.#push({ kind: "item", container: true, ordered, element, offset: indent + width + wide });
  }

  openHeading({ level, text }) {
    const [kind, size] = [`h${Math.min(6, level + 2)}`, `size-${level}`];
    this.#push({ kind: "heading", element: h(kind, { class: size }, inline(text, { refs: this.#refs })) });
    this.#open.pop();
  }

  /** The paragraph turns out to be a heading. */
  openUnderlined({ level }) {
    const { element, text } = this.#open.pop();
    this.#remove(element);
    this.openHeading({ level, text });
  }

  openRule() {
    this.#push({ kind: "rule", element: h("hr") });
    this.#open.pop();
  }

  openCode({ fence, indent, language, formula }, line, end) {
    const code = new CodeView(language, { formula });
    const kind = fence ? "fence" : formula ? "formula" : "indented";
    this.#push({ kind, verbatim: true, code, element: code.element, fence, indent, formula });
    if (!fence) this.#verbatim(line, end);
  }

  /** A line of what is shown as it is. */
  #verbatim(line, end) {
    const { top } = this,
      words = line.words.trimEnd();
    if (top.kind === "indented" && line.blank && end) {
      top.blanks = `${top.blanks ?? ""}${line.rest}${end}`; // of the code only if more of it follows
      return;
    }
    this.#write(top, (top.blanks ?? "") + line.rest + end);
    top.blanks = "";
    if (top.formula && words.length > 2 && words.endsWith(top.formula)) this.#close(this.#open.length - 1);
  }

  /** The paragraph's last line turns out to be the head of a table. */
  openTable({ columns }) {
    const paragraph = this.#open.pop();
    const cut = paragraph.text.lastIndexOf("\n");
    if (cut < 0) this.#remove(paragraph.element);
    else this.#finish({ ...paragraph, text: paragraph.text.slice(0, cut) });
    const aligned = alignments(columns),
      { box, head, body } = tableOf();
    head.append(row("th", cells(paragraph.text.slice(cut + 1)), aligned, this.#refs));
    this.#push({ kind: "table", element: body, outer: box, aligned });
  }

  #addRow(text) {
    this.#append(this.top, row("td", cells(text), this.top.aligned, this.#refs));
  }
}

const OPENS = {
  quote: (blocks, start, line) => blocks.openQuote(start, line),
  item: (blocks, start, line) => blocks.openItem(start, line),
  heading: (blocks, start) => blocks.openHeading(start),
  underlined: (blocks, start) => blocks.openUnderlined(start),
  rule: (blocks) => blocks.openRule(),
  code: (blocks, start, line, end) => blocks.openCode(start, line, end),
  table: (blocks, start) => blocks.openTable(start),
};
