/**
 * The last lines of a process's output, rendered like a terminal; expanded, the complete output as lines, or as the
 * screen of a terminal where a program draws on it.
 */

import { linesOf } from "./ansi.js";
import { areSame, countWords, EXCERPT_CHARACTERS, lastLines, LINES, linesSeen } from "./excerpts.js";
import { copyText } from "../dom/copy.js";
import { announce, button, h, hasSelection, icon, onNextFrame, restoreFocus } from "../dom/elements.js";
import { Problem } from "../dom/forms.js";
import { saveText } from "../dom/download.js";
import { renderLines } from "./line_nodes.js";
import { t } from "../dom/texts.js";
import { readPieces } from "../feed/output.js";

const MAX_LINE = 400; // the server truncates longer lines
const NEAR = 30; // pixels from the end that still count as the end
const COPIED_MS = 2_000;
const ECHO_MS = [30, 120]; // after a key, when its echo is looked for
const SIZE = { columns: 120, rows: 40 }; // of a terminal whose size is not known
const BEYOND = 2 ** 40; // a position behind every output: such a read tells only how much there is

export class Tail {
  #whole;
  #name;
  #status = { tail: [], lines: 0 };
  #final = null; // the text that was left in the end
  #seen = 0; // lines of it, if it is only a part
  #coloured = null; // its last lines as they were written
  #wasLive = false;
  #opened = null; // {kind: "lines" or "screen", view, total, current: all that there was has come}
  #following = true;
  #held = false; // at a place that was searched for, even if that is at the end
  #link = null; // the command's terminal, while it takes input
  #silent = false; // the command waits for input although it has printed nothing
  #declined = false; // the reader has closed the screen that was opened for them
  #wake = () => undefined; // ends the wait for more output

  /**
   * `whole(after)` reads more of the output: `{text, from, next, characters, done}`, see `callOutput`. `name` is
   * that of the saved file; `size()` the size that the terminal began with; `prose`: text instead of terminal output,
   * of which the first lines are shown.
   */
  constructor({ label, whole = null, name = "output", size = () => null, prose = false }) {
    this.#whole = whole;
    this.#name = name;
    this.label = label;
    this.size = size;
    this.prose = prose;
    const props = { class: "tail", role: "group", tabindex: 0, "aria-label": label, onscroll: () => this.#scrolled() };
    this.box = h("div", props);
    this.count = h("span", { class: "tail-count" });
    this.toEnd = this.#button(t("tail.end"), "down", () => this.#end());
    this.look = this.#button(t("tail.search"), "search", () => this.#search());
    this.mode = this.#button(t("tail.screen"), "tool", () => this.#switch());
    this.reads = this.#button(t("screen.reader"), "bell", () => this.#readAloud(), { "aria-pressed": "false" });
    this.all = this.#button(t("tail.all"), "more", () => this.#toggle(), { "aria-expanded": "false" });
    this.copy = this.#button(t("tail.copy"), "copy", () => this.#copy());
    this.save = this.#button(t("tail.save"), "save", () => this.#save());
    const { count, toEnd, look, mode, reads, all, copy, save } = this;
    this.bar = h("div", { class: "tail-bar" }, count, toEnd, look, mode, reads, all, copy, save);
    this.searched = h("div", {});
    this.problem = new Problem();
    const boxes = [this.box, this.bar, this.searched, this.problem.element];
    this.element = h("div", { class: prose ? "tail-box prose" : "tail-box", hidden: true }, boxes);
  }

  /** `{tail: [...], lines, bytes, screen}` of a progress event or a job; `live`: it is happening now. */
  show(told, { live = true } = {}) {
    this.#status = told;
    this.#wasLive = true;
    onNextFrame(this.#draw);
    this.#wake();
    const mayOpen = live && this.#whole && !this.opened && !this.#declined;
    if (told.screen && mayOpen && !document.hidden) this.#open("screen");
  }

  /** The terminal of the command takes input (see CallTerminal), also before it prints; null: no more. */
  connect(link, silent = false) {
    if (this.#silent !== Boolean(link && silent)) onNextFrame(this.#draw);
    this.#silent = Boolean(link && silent);
    if (link) link.onSent = () => ECHO_MS.forEach((ms) => setTimeout(() => this.#wake(), ms));
    if (this.#link === link) return;
    this.#link = link;
    if (this.#opened?.kind === "screen") this.#opened.view?.connect(link);
  }

  /** The output is complete; `text` is its final text, if known, and `lines` the number of all that were written. */
  end(text, lines) {
    if (text !== undefined) {
      this.#final = text;
      this.#seen = linesSeen(text);
    }
    if (lines) this.#status = { ...this.#status, lines };
    this.#wake();
    onNextFrame(this.#draw);
  }

  get opened() {
    return this.#opened !== null;
  }

  /** Reads what a page that was not there has missed: the colours of the last lines, and how many lines there are. */
  async recall() {
    if (!this.#whole || this.#coloured !== null || this.#final === null) return;
    this.#coloured = "";
    try {
      const { characters, lines } = await this.#whole(BEYOND);
      if (lines) this.#status = { ...this.#status, lines }; // not known of all that are stored
      const from = Math.max(0, characters - EXCERPT_CHARACTERS);
      if (characters && !this.#wasLive) this.#coloured = (await this.#whole(from)).text;
    } catch (error) {
      if (!error.status) throw error; // it is not stored, or the server cannot be reached: the plain text stays
    }
    onNextFrame(this.#draw);
  }

  #button(words, drawing, onclick, more = {}) {
    return button([icon(drawing), words], onclick, { class: "quiet tail-button", hidden: true, ...more });
  }

  #draw = () => {
    const known = this.#final;
    const lines = known === null ? linesOf(this.#status.tail.join("\n")) : this.#inColour(this.#excerpt(known));
    const cut = this.#seen > 0;
    if (cut && !this.prose) this.recall(); // the model's part does not say how long the whole is
    const total = this.#total(lines, cut);
    this.element.hidden = !lines.length && !this.opened && !this.#silent;
    this.box.hidden = !lines.length && !this.opened;
    if (!this.opened) this.#showCount(total);
    const drawn = Boolean(this.#whole && this.#status.screen);
    const shortened = known === null && this.#status.tail.some((line) => line.length >= MAX_LINE);
    this.all.hidden = !this.opened && total <= lines.length && !cut && !shortened && !drawn;
    this.copy.hidden = this.save.hidden = known === null && !this.#whole;
    this.look.hidden = this.prose || (!this.opened && this.all.hidden);
    this.mode.hidden = !this.opened || this.prose || !this.#whole;
    this.reads.hidden = this.#opened?.kind !== "screen";
    this.bar.hidden = known !== null && !this.#wasLive && this.all.hidden && total <= 1;
    // Redrawing would clear the reader's selection.
    if (!this.opened && !hasSelection(this.box)) this.box.replaceChildren(renderLines(lines));
    // Once all tails of the frame are drawn: each that reads its height in between would lay the page out anew.
    if (!this.opened && !this.prose) queueMicrotask(() => this.#follow());
  };

  #showCount(total) {
    this.count.textContent = countWords(total, this.#seen);
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
    if (!this.opened) return this.#open(this.#status.screen && this.#whole ? "screen" : "lines");
    this.#declined ||= this.#opened.kind === "screen";
    this.#collapse();
    this.#scrolled();
  }

  #collapse() {
    const hadFocus = this.searched.contains(document.activeElement);
    this.#close();
    this.search?.close();
    this.#draw();
    if (hadFocus) restoreFocus(this.all);
  }

  /** Changes between lines and screen; the reader's choice stays. */
  #switch() {
    const kind = this.#opened.kind === "screen" ? "lines" : "screen";
    this.#open(kind, { chosen: true });
    this.mode.focus();
  }

  #close() {
    const hadFocus = this.#opened.view?.focused;
    this.#opened.view?.close();
    this.#opened = null;
    this.#following = !this.prose;
    this.#held = false;
    this.box.replaceChildren();
    this.box.tabIndex = 0;
    this.element.classList.remove("open", "screened");
    this.#nameButtons();
    if (hadFocus) restoreFocus(this.all);
  }

  #open(kind, { chosen = false } = {}) {
    if (this.opened) this.#close();
    const opened = { kind, chosen, view: null, total: null, current: false };
    this.#opened = opened;
    this.element.hidden = false;
    this.element.classList.add("open");
    this.element.classList.toggle("screened", kind === "screen");
    this.problem.show("");
    this.#nameButtons();
    this.#draw();
    this.#scrolled();
    this.search?.refresh();
    if (kind === "lines") this.#openLines(opened);
    else this.#openScreen(opened);
  }

  async #openLines(opened) {
    const { WholeLines } = await import("./whole_lines.js");
    if (this.#opened !== opened) return;
    opened.view = new WholeLines(this.box, () => this.#drawnLines(opened));
    opened.view.following = this.#following;
    this.#read(opened);
  }

  #nameButtons() {
    const open = this.opened;
    this.all.lastChild.textContent = t(open ? "tail.less" : "tail.all");
    this.all.setAttribute("aria-expanded", String(open));
    this.mode.lastChild.textContent = t(this.#opened?.kind === "screen" ? "tail.as_lines" : "tail.screen");
  }

  async #openScreen(opened) {
    try {
      const { loadScreen, Screen } = await import("./screen.js");
      const parts = await loadScreen();
      if (this.#opened !== opened) return;
      this.box.replaceChildren();
      this.box.removeAttribute("tabindex"); // the screen takes the focus itself
      const size = this.size() ?? SIZE;
      opened.view = new Screen(parts, this.box, { label: this.label, size, onLeave: () => this.mode.focus() });
      opened.view.connect(this.#link);
      this.box.after(opened.view.hint);
      this.reads.setAttribute("aria-pressed", String(opened.view.readsAloud));
    } catch (error) {
      if (this.#opened !== opened) return;
      this.#declined = true;
      this.#open("lines", { chosen: true });
      this.problem.show(t("screen.failed", { reason: error.message }));
      return;
    }
    this.#read(opened);
  }

  /** Reads the complete output while the tail is expanded. */
  async #read(opened) {
    const wanted = () => this.#opened === opened && this.element.isConnected;
    const asleep = (ms) => {
      this.#isCurrent(opened);
      const { promise, resolve } = Promise.withResolvers();
      this.#wake = resolve;
      setTimeout(resolve, ms);
      return promise;
    };
    try {
      const how = { follow: true, wanted, asleep, onPiece: (piece) => this.#takePiece(opened, piece) };
      for await (const text of this.#pieces(how)) await this.#add(opened, text);
      if (opened.kind === "screen" && wanted()) this.#endScreen(opened);
    } catch (error) {
      if (!wanted()) return;
      this.problem.show(error.status === 404 ? t("tail.not_stored") : error.message);
      if (!opened.begun) await this.#add(opened, this.#final ?? this.#status.tail.join("\n"));
    }
    if (!wanted()) return;
    if (opened.kind === "lines") opened.view.end();
    this.#isCurrent(opened);
  }

  #isCurrent(opened) {
    opened.current = true;
    this.search?.refresh();
  }

  /** A program that leaves nothing behind, as an editor does, leaves no empty screen. */
  #endScreen({ view, chosen }) {
    if (view.text || chosen) return view.shrink();
    this.#collapse();
  }

  async #takePiece(opened, { lines, from, next, characters }) {
    opened.total = lines;
    if (opened.kind !== "screen") return;
    if (from > (opened.next ?? 0)) opened.view.reset(); // what is missing may have moved everything
    opened.next = next;
    if (next < characters) return;
    await opened.view.write("");
    if (this.#opened === opened) opened.view.caughtUp();
    this.#showCount(lines);
  }

  async #add(opened, text) {
    if (opened.kind === "lines") opened.view.add(text);
    else await opened.view.write(text, { first: !opened.begun });
    opened.begun = true;
    if (opened.kind === "screen") this.search?.refresh();
  }

  async *#pieces(how) {
    const isPlain = this.#final !== null && !this.#seen && !this.#hasColours;
    const isAll = isPlain && this.#opened?.kind !== "screen";
    if (this.#final !== null && (isAll || !this.#whole)) yield this.#final;
    else if (this.#whole) yield* readPieces(this.#whole, how);
    else yield this.#status.tail.join("\n");
  }

  /** A frame's part of the lines is drawn. */
  #drawnLines(opened) {
    if (this.#opened !== opened) return;
    const { view } = opened;
    // Of all that was written, also where only the beginning and the end are still stored.
    this.#showCount(opened.total ?? view.count);
    if (this.#following) this.#follow();
    if (this.#held || view.isComplete) this.#scrolled();
    this.search?.refresh();
    if (view.needsScreen && !opened.chosen && !this.prose && this.#whole) this.#open("screen");
  }

  #follow() {
    if (this.#following && !this.box.closest("[hidden]")) this.box.scrollTop = this.box.scrollHeight;
  }

  #scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.box;
    const atEnd = scrollHeight - scrollTop - clientHeight < NEAR;
    this.#held &&= atEnd && !this.#opened?.view?.isComplete;
    this.#following = atEnd && !this.#held;
    if (this.#opened?.kind === "lines" && this.#opened.view) this.#opened.view.following = this.#following;
    this.toEnd.hidden = this.#following || this.#opened?.kind === "screen";
  }

  #end() {
    this.#held = false;
    this.#following = true;
    if (this.#opened?.kind === "lines" && this.#opened.view) {
      this.#opened.view.following = true;
      this.#opened.view.draw();
    }
    this.#follow();
    this.box.focus({ preventScroll: true });
  }

  async #search() {
    const { TailSearch } = await import("./tail_search.js");
    if (!this.search) {
      const find = (term, how) => this.#find(term, how);
      this.search = new TailSearch(find, () => this.look.focus());
      this.searched.append(this.search.element);
    }
    if (!this.opened) this.#toggle();
    this.search.toggle();
  }

  /** Null where nothing is found before all has come: `refresh` searches again. */
  async #find(term, how) {
    const opened = this.#opened;
    if (!term) this.#held = false;
    if (!opened?.view) return null;
    const found = await opened.view.find(term, how);
    if (this.#opened !== opened || found === undefined) return undefined;
    if (found.moved) {
      this.#held = true; // stays at this place while more lines come
      this.#scrolled();
    }
    const isFound = found === true || found.of > 0;
    return isFound || (opened.current && opened.view.isDrawn) ? found : null;
  }

  #readAloud() {
    const { view } = this.#opened ?? {};
    if (!view) return;
    view.readsAloud = !view.readsAloud;
    this.reads.setAttribute("aria-pressed", String(view.readsAloud));
  }

  /** All of it that there is by now, without colours. */
  async #text() {
    if (this.#opened?.kind === "screen" && this.#opened.view) return this.#opened.view.text;
    const { plainText } = await import("./whole_lines.js");
    return plainText(this.#pieces({}));
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
    this.problem.show("");
    try {
      await give(await this.#text());
    } catch (error) {
      if (error.status === 404) return void (await give(this.#final ?? this.#status.tail.join("\n")));
      this.problem.show(error.message);
    }
  }
}
