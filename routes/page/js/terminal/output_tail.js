/** The last lines of a process's output, rendered like a terminal; expanded, the complete output. */

import { linesOf, textOf, Terminal } from "./ansi.js";
import { copyText } from "../dom/copy.js";
import { h, icon, announce, hasSelection, onNextFrame } from "../dom/elements.js";
import { saveText } from "../dom/download.js";
import { renderLines, LineWindow } from "./line_window.js";
import { yieldToBrowser } from "../dom/scheduling.js";
import { readPieces } from "../feed/output.js";

const LINES = 12;
const MAX_LINE = 400; // the server truncates longer lines
const NEAR = 30; // pixels from the end that still count as the end
const COPIED_MS = 2_000;
const PER_FRAME = 32_768; // characters
const EXCERPT_CHARACTERS = 16_384; // characters of a long text, for its last lines
const CUT = /\[\.{3,} [\d,]+ characters left out \.\.\.\]|^\[read_result\(.* shows what is left out\.\]$/m;

export class Tail {
  #whole;
  #name;
  #status = { tail: [], lines: 0 };
  #final = null; // the text that was left in the end
  #opened = null; // {roll, terminal, queue}
  #following = true;

  /**
   * `whole(after)` reads more of the output: `{text, from, next, characters, done}`, see `callOutput`. `name` is
   * that of the saved file; `prose`: text instead of terminal output, of which the first lines are shown.
   */
  constructor({ label, whole = null, name = "output", prose = false }) {
    this.#whole = whole;
    this.#name = name;
    this.prose = prose;
    const props = { class: "tail", role: "group", tabindex: 0, "aria-label": label, onscroll: () => this.#scrolled() };
    this.box = h("div", props);
    this.count = h("span", { class: "tail-count" });
    this.toEnd = this.#button("To the end", "down", () => this.#end());
    this.all = this.#button("Show all", "more", () => this.#toggle(), { "aria-expanded": "false" });
    this.copy = this.#button("Copy", "copy", () => this.#copy());
    this.save = this.#button("Save", "save", () => this.#save());
    this.bar = h("div", { class: "tail-bar" }, this.count, this.toEnd, this.all, this.copy, this.save);
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.element = h("div", { class: prose ? "tail-box prose" : "tail-box" }, this.box, this.bar, this.problem);
    this.element.hidden = true;
  }

  /** `{tail: [...], lines, bytes}` of a progress event or a job. */
  show(told) {
    this.#status = told;
    onNextFrame(this.#draw);
  }

  /** The output is complete; `text` is its final text, if known. */
  end(text) {
    if (text !== undefined) this.#final = text;
    onNextFrame(this.#draw);
  }

  get opened() {
    return this.#opened !== null;
  }

  #button(words, drawing, onclick, more = {}) {
    return h(
      "button",
      { type: "button", class: "quiet tail-button", onclick, hidden: true, ...more },
      icon(drawing),
      words,
    );
  }

  #draw = () => {
    const known = this.#final;
    const lines = known === null ? linesOf(this.#status.tail.join("\n")) : this.#inColour(this.#excerpt(known));
    const cut = known !== null && CUT.test(known);
    const total = this.#total(lines, cut);
    this.element.hidden = !lines.length;
    if (!this.opened) this.#showCount(total, cut);
    const shortened = known === null && this.#status.tail.some((line) => line.length >= MAX_LINE);
    this.all.hidden = !this.opened && total <= lines.length && !cut && !shortened;
    this.copy.hidden = this.save.hidden = known === null && !this.#whole;
    this.bar.hidden = known !== null && this.all.hidden && total <= 1;
    // Redrawing would clear the reader's selection.
    if (!this.opened && !hasSelection(this.box)) this.box.replaceChildren(renderLines(lines));
    if (!this.opened && !this.prose) this.#follow();
  };

  #showCount(total, cut = false) {
    const lines = total > LINES || (total > 1 && !cut) ? `${total.toLocaleString()} lines` : "";
    this.count.textContent = [lines, cut ? "truncated for the model" : ""].filter(Boolean).join(", ");
  }

  /** The lines that are shown while the tail is collapsed. */
  #excerpt(text) {
    if (this.prose) return linesOf(text.slice(0, EXCERPT_CHARACTERS)).slice(0, LINES);
    return linesOf(text.slice(-EXCERPT_CHARACTERS).trimEnd()).slice(-LINES);
  }

  /** The same lines as they were shown last: the final text has no colours. */
  #inColour(lines) {
    if (!this.#hasColours) return lines;
    const shown = linesOf(this.#status.tail.join("\n"));
    return textOf(shown).trimEnd() === textOf(lines).trimEnd() ? shown : lines;
  }

  get #hasColours() {
    return this.#status.tail.some((line) => line.includes("\x1b"));
  }

  #total(lines, cut) {
    if (this.#final === null || cut) return Math.max(this.#status.lines ?? 0, lines.length);
    return this.#final.trimEnd().split("\n").length;
  }

  #toggle() {
    const open = !this.opened;
    this.#opened = open ? { roll: new LineWindow(this.box), terminal: new Terminal(), queue: [], lines: 0 } : null;
    this.#following = !this.prose;
    this.all.lastChild.textContent = open ? "Show less" : "Show all";
    this.all.setAttribute("aria-expanded", String(open));
    this.element.classList.toggle("open", open);
    this.problem.hidden = true;
    this.#draw();
    this.#scrolled();
    if (open) this.#read(this.#opened);
  }

  /** Reads the complete output while the tail is expanded. */
  async #read(opened) {
    const wanted = () => this.#opened === opened && this.element.isConnected;
    try {
      for await (const text of this.#pieces({ follow: true, wanted })) this.#enqueue(opened, text);
    } catch (error) {
      if (!wanted()) return;
      this.problem.textContent = error.status === 404 ? "The server has not stored the rest." : error.message;
      this.problem.hidden = false;
      if (!opened.poured) this.#enqueue(opened, this.#final ?? this.#status.tail.join("\n"));
    }
  }

  async *#pieces(how) {
    const isAll = this.#final !== null && !CUT.test(this.#final) && !this.#hasColours;
    if (this.#final !== null && (isAll || !this.#whole)) yield this.#final;
    else if (this.#whole) yield* readPieces(this.#whole, how);
    else yield this.#status.tail.join("\n");
  }

  #enqueue(opened, text) {
    opened.poured = true;
    opened.queue.push(text);
    opened.draw ??= () => this.#drawWhole(opened);
    onNextFrame(opened.draw);
  }

  /** Processes as much as fits into a frame. */
  #drawWhole(opened) {
    if (this.#opened !== opened) return;
    const { roll, terminal, queue } = opened;
    for (let room = PER_FRAME; queue.length && room > 0; ) {
      const text = queue.shift();
      terminal.feed(text.slice(0, room));
      if (text.length > room) queue.unshift(text.slice(room));
      room -= text.length;
    }
    const lines = terminal.take();
    opened.lines += lines.length;
    const read = opened.lines + (terminal.open.length ? 1 : 0);
    this.#showCount(Math.max(read, this.#status.lines ?? 0)); // some of them may no longer be stored
    roll.add(lines);
    roll.draw(this.#following, terminal.open);
    if (this.#following) this.#follow();
    if (queue.length) onNextFrame(opened.draw);
  }

  #follow() {
    if (this.#following) this.box.scrollTop = this.box.scrollHeight;
  }

  #scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.box;
    this.#following = scrollHeight - scrollTop - clientHeight < NEAR;
    this.toEnd.hidden = this.#following;
  }

  #end() {
    this.#following = true;
    if (this.#opened) this.#drawWhole(this.#opened);
    this.#follow();
    this.box.focus({ preventScroll: true });
  }

  /** All of it that there is by now, without colours. */
  async #text() {
    const terminal = new Terminal();
    const lines = [];
    for await (const text of this.#pieces({})) {
      for (let at = 0; at < text.length; at += PER_FRAME) {
        terminal.feed(text.slice(at, at + PER_FRAME));
        lines.push(...terminal.take());
        await yieldToBrowser();
      }
    }
    return textOf(terminal.open.length ? [...lines, terminal.open] : lines);
  }

  async #copy() {
    await this.#withText(async (text) => {
      const told = (await copyText(text)) ? "Copied" : "Copying failed";
      this.copy.lastChild.textContent = told;
      announce(told);
      setTimeout(() => (this.copy.lastChild.textContent = "Copy"), COPIED_MS);
    });
  }

  async #save() {
    await this.#withText((text) => saveText(`${text}\n`, this.#name, "txt"));
  }

  async #withText(give) {
    this.problem.hidden = true;
    try {
      await give(await this.#text());
    } catch (error) {
      if (error.status === 404) return void (await give(this.#final ?? this.#status.tail.join("\n")));
      this.problem.textContent = error.message;
      this.problem.hidden = false;
    }
  }
}
