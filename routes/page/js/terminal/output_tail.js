/** The last lines of a process's output, rendered like a terminal; expanded, the complete output. */

import { linesOf, textOf, Terminal } from "./ansi.js";
import { copyText } from "../dom/copy.js";
import { h, icon, announce, hasSelection, onNextFrame } from "../dom/elements.js";
import { saveText } from "../dom/download.js";
import { renderLines, LineWindow } from "./line_window.js";
import { t } from "../dom/texts.js";
import { yieldToBrowser } from "../dom/scheduling.js";
import { readPieces } from "../feed/output.js";

const LINES = 12;
const MAX_LINE = 400; // the server truncates longer lines
const NEAR = 30; // pixels from the end that still count as the end
const COPIED_MS = 2_000;
const PER_FRAME = 32_768; // characters
const EXCERPT_CHARACTERS = 16_384; // characters of a long text, for its last lines
const BEYOND = 2 ** 40; // a position behind every output: such a read tells only how much there is
const CUT = /\[\.{3,} [\d,]+ characters left out \.\.\.\]|^\[read_result\(.* shows what is left out\.\]$/m;

export class Tail {
  #whole;
  #name;
  #status = { tail: [], lines: 0 };
  #final = null; // the text that was left in the end
  #coloured = null; // its last lines as they were written
  #wasLive = false;
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
    this.toEnd = this.#button(t("tail.end"), "down", () => this.#end());
    this.all = this.#button(t("tail.all"), "more", () => this.#toggle(), { "aria-expanded": "false" });
    this.copy = this.#button(t("tail.copy"), "copy", () => this.#copy());
    this.save = this.#button(t("tail.save"), "save", () => this.#save());
    this.bar = h("div", { class: "tail-bar" }, this.count, this.toEnd, this.all, this.copy, this.save);
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.element = h("div", { class: prose ? "tail-box prose" : "tail-box" }, this.box, this.bar, this.problem);
    this.element.hidden = true;
  }

  /** `{tail: [...], lines, bytes}` of a progress event or a job. */
  show(told) {
    this.#status = told;
    this.#wasLive = true;
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

  /** Reads what a page that was not there has missed: the colours of the last lines, and how many lines there are. */
  async recall() {
    if (!this.#whole || this.#wasLive || this.#coloured !== null || this.#final === null) return;
    this.#coloured = "";
    try {
      const { characters, lines } = await this.#whole(BEYOND);
      this.#status = { ...this.#status, lines };
      if (lines) this.#coloured = (await this.#whole(Math.max(0, characters - EXCERPT_CHARACTERS))).text;
    } catch (error) {
      if (!error.status) throw error; // it is not stored, or the server cannot be reached: the plain text stays
    }
    onNextFrame(this.#draw);
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
    this.bar.hidden = known !== null && !this.#wasLive && this.all.hidden && total <= 1;
    // Redrawing would clear the reader's selection.
    if (!this.opened && !hasSelection(this.box)) this.box.replaceChildren(renderLines(lines));
    if (!this.opened && !this.prose) this.#follow();
  };

  #showCount(total, cut = false) {
    const lines = total > LINES || (total > 1 && !cut) ? t("tail.lines", { count: total }) : "";
    this.count.textContent = [lines, cut ? t("tail.cut") : ""].filter(Boolean).join(", ");
  }

  /** The lines that are shown while the tail is collapsed. */
  #excerpt(text) {
    if (this.prose) return linesOf(text.slice(0, EXCERPT_CHARACTERS)).slice(0, LINES);
    return lastLines(text);
  }

  /** The same lines as they were shown last, or as they are stored: the final text has no colours. */
  #inColour(lines) {
    if (this.prose) return lines;
    const seen = this.#hasColours ? linesOf(this.#status.tail.join("\n")) : lastLines(this.#coloured ?? "");
    return areSame(seen, lines) ? seen : lines;
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
    this.all.lastChild.textContent = t(open ? "tail.less" : "tail.all");
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
      const onPiece = ({ lines }) => (opened.total = lines);
      for await (const text of this.#pieces({ follow: true, wanted, onPiece })) this.#enqueue(opened, text);
    } catch (error) {
      if (!wanted()) return;
      this.problem.textContent = error.status === 404 ? t("tail.not_stored") : error.message;
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
    // Of all that was written, also where only the beginning and the end are still stored.
    this.#showCount(opened.total || opened.lines + (terminal.open.length ? 1 : 0));
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
      const told = t((await copyText(text)) ? "tail.copied" : "tail.copy_failed");
      this.copy.lastChild.textContent = told;
      announce(told);
      setTimeout(() => (this.copy.lastChild.textContent = t("tail.copy")), COPIED_MS);
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

const lastLines = (text) => linesOf(text.slice(-EXCERPT_CHARACTERS).trimEnd()).slice(-LINES);

/** Whether two excerpts show the same text: of a long line the server sends the end, after an ellipsis. */
function areSame(seen, lines) {
  const one = textOf(seen).trimEnd().split("\n");
  const other = textOf(lines).trimEnd().split("\n");
  if (one.length !== other.length) return false;
  return one.every((line, at) => {
    const whole = other[at].trimEnd();
    return line.startsWith("…") ? whole.endsWith(line.slice(1).trimEnd()) : line.trimEnd() === whole;
  });
}
