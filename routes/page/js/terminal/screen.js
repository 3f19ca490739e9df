/**
 * A real terminal screen, by xterm.js: for programs that move the cursor (editors, `top`, progress of several lines).
 *
 * It is fetched only when a card is opened as a screen. What prints lines stays with our own tail (output_tail.js):
 * that costs a hundredth of the bytes, keeps 100,000 lines in little memory, is real text for screen readers, selection
 * and the browser's own search, and needs no keyboard focus of its own.
 */

import { h } from "../dom/elements.js";
import { library } from "../dom/library.js";
import { readPreference, writePreference } from "../dom/storage.js";
import { t } from "../dom/more_texts.js";
import { screenColours } from "./ansi_colours.js";
import { openStrictly } from "./strict_xterm.js";

const SCROLLBACK = 10_000; // lines
const COLUMNS = [20, 400]; // that the server takes
const HEIGHTS = [5, 200]; // that the server takes
const ROWS = [10, 40];
// The size changed here: the server's mark, see OutputBuffer.resize.
const MARK = 12; // characters of it at most
const CUT_MARK = /\x1b(?:\[(?:8[;\d]*)?)?$/;
const RESIZED = /\x1b\[8;(\d{1,3});(\d{1,3})t/g;
const SHARE = 0.6; // of the window's height
const SETTLED_MS = 150;
const ONE_TAB = "terminal.reader"; // the preference of screen readers' users
const LEAVE = "KeyL"; // with Ctrl and Shift: a terminal cannot send that, so that no program misses it
const SCROLL_KEYS = new Set(["PageUp", "PageDown", "Home", "End"]);
const COPIED = { ctrl: "KeyC" };

/** Loads what a screen needs. */
export async function loadScreen() {
  const [{ Terminal }, { SearchAddon }, { Unicode11Addon }] = await Promise.all([
    library("xterm/xterm.mjs", { style: "xterm/xterm.css" }),
    library("xterm-search/addon-search.mjs"),
    library("xterm-unicode11/addon-unicode11.mjs"),
  ]);
  return { Terminal, SearchAddon, Unicode11Addon };
}

export class Screen {
  #terminal;
  #search;
  #link = null; // the command's terminal: `type(data)` and `resize(columns, rows)`
  #caughtUp = false; // what is written now is new: its questions may be answered
  #close;
  #sized;
  #found = ""; // the text that was found last
  #cut = ""; // of a mark that comes in two pieces

  /** `parts`: see `loadScreen`; `size`: `{columns, rows}` that the output begins with; `onLeave()` takes the focus. */
  constructor(parts, box, { label, size, onLeave }) {
    const style = getComputedStyle(box);
    const { backgroundColor: background, color: foreground } = style;
    const cursor = { cursor: foreground, cursorAccent: background, selectionBackground: "rgb(128 128 128 / 35%)" };
    this.box = box;
    this.onLeave = onLeave;
    this.#terminal = new parts.Terminal({
      cols: size.columns,
      rows: size.rows,
      scrollback: SCROLLBACK,
      allowProposedApi: true, // of the widths of characters
      disableStdin: true,
      cursorInactiveStyle: "outline",
      drawBoldTextInBrightColors: false, // as the tail
      fontFamily: style.fontFamily,
      fontSize: Math.round(parseFloat(style.fontSize)),
      lineHeight: 1.2,
      minimumContrastRatio: 4.5,
      screenReaderMode: readPreference(ONE_TAB) === "on",
      theme: { ...screenColours(background), background, foreground, ...cursor },
    });
    this.#terminal.loadAddon(new parts.Unicode11Addon());
    this.#terminal.unicode.activeVersion = "11";
    this.#search = new parts.SearchAddon();
    this.#terminal.loadAddon(this.#search);
    this.#listen();
    this.hint = h("p", { class: "screen-hint", id: `screen-${++made}` });
    this.#close = openStrictly(this.#terminal, box);
    this.#terminal.textarea.setAttribute("aria-label", label);
    this.#terminal.textarea.setAttribute("aria-describedby", this.hint.id);
    this.#observe();
    this.connect(null);
  }

  #listen() {
    const terminal = this.#terminal;
    // Answers to a program's questions come this way, too: only while a person is in this screen, and not to old ones.
    terminal.onData((data) => {
      if (this.#link && this.#caughtUp && this.focused) this.#link.type(data);
    });
    terminal.attachCustomKeyEventHandler((event) => this.#takes(event));
  }

  #observe() {
    let timer = null;
    this.#sized = new ResizeObserver(() => {
      clearTimeout(timer);
      timer = setTimeout(() => this.#fit(), SETTLED_MS);
    });
    this.#sized.observe(this.box);
  }

  /** Gives the command's terminal the size of the card; the screen follows with the mark in the output. */
  #fit() {
    if (!this.#link || !this.#caughtUp || !this.box.isConnected) return;
    const { cols, rows, element } = this.#terminal;
    const screen = element.querySelector(".xterm-screen").getBoundingClientRect();
    if (!screen.width) return;
    const { paddingLeft, paddingRight } = getComputedStyle(this.box);
    const room = this.box.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight) - SCROLLBAR;
    const columns = clamp(Math.floor((room * cols) / screen.width), COLUMNS);
    const high = clamp(Math.floor((innerHeight * SHARE * rows) / screen.height), ROWS);
    if (columns !== cols || high !== rows) this.#link.resize(columns, high);
  }

  /** The command's terminal while it runs; null: nothing can be typed. */
  connect(link) {
    this.#link = link;
    this.#terminal.options.disableStdin = !link;
    this.#terminal.options.cursorStyle = link ? "block" : "underline";
    this.#terminal.textarea.tabIndex = link ? 0 : -1;
    this.hint.textContent = link ? t("screen.hint") : t("screen.ended");
    this.#fit();
  }

  /** Resolves when it is drawn. `first`: the beginning shows if it was written to a terminal, or to a pipe. */
  async write(text, { first = false } = {}) {
    if (first) this.#terminal.options.convertEol = !text.includes("\r\n");
    const all = this.#cut + text;
    this.#cut = CUT_MARK.exec(all.slice(-MARK))?.[0] ?? "";
    const whole = all.slice(0, all.length - this.#cut.length);
    let at = 0;
    for (const mark of whole.matchAll(RESIZED)) {
      await this.#write(whole.slice(at, mark.index));
      this.#terminal.resize(clamp(Number(mark[2]), COLUMNS), clamp(Number(mark[1]), HEIGHTS));
      at = mark.index + mark[0].length;
    }
    await this.#write(whole.slice(at));
  }

  #write(text) {
    return new Promise((resolve) => this.#terminal.write(text, resolve));
  }

  /** All that was written before this page has been replayed. */
  caughtUp() {
    if (this.#caughtUp) return;
    this.#caughtUp = true;
    this.#fit();
  }

  /** Forgets all that was written: what comes next does not continue it. */
  reset() {
    this.#found = "";
    this.#terminal.reset();
  }

  get focused() {
    return this.box.contains(document.activeElement);
  }

  /** Whether the terminal handles this key; the others are the browser's. */
  #takes(event) {
    const { code, key, ctrlKey, shiftKey } = event;
    if (ctrlKey && shiftKey && code === LEAVE) {
      event.preventDefault();
      if (event.type === "keydown") this.onLeave();
      return false;
    }
    if (ctrlKey && !shiftKey && code === COPIED.ctrl && this.#terminal.hasSelection()) return false; // copies
    return Boolean(this.#link) || (shiftKey && SCROLL_KEYS.has(key));
  }

  /**
   * Selects the next place of a text, or the one before; returns whether there is one. `keep`: one is enough, and
   * nothing is said while the reader has a selection.
   */
  find(term, { back = false, fresh = false, keep = false } = {}) {
    if (keep && this.#found === term) return true;
    if (keep && this.#terminal.hasSelection()) return undefined; // a search would clear it
    this.#found = "";
    if (!term) return void this.#search.clearDecorations();
    const isFound = back ? this.#search.findPrevious(term) : this.#search.findNext(term, { incremental: fresh });
    if (isFound) this.#found = term;
    return isFound;
  }

  /** `write` resolves when it is drawn. */
  get isDrawn() {
    return true;
  }

  /** The selection, else all lines that are still known. */
  get text() {
    if (this.#terminal.hasSelection()) return this.#terminal.getSelection();
    const { active } = this.#terminal.buffer;
    let text = "";
    for (let at = 0; at < active.length; at++) {
      const line = active.getLine(at);
      const goesOn = active.getLine(at + 1)?.isWrapped;
      text += line.translateToString(!goesOn) + (goesOn ? "" : "\n");
    }
    return text.trimEnd();
  }

  /** Takes away the empty rows below the last one that is used. */
  shrink() {
    const { active } = this.#terminal.buffer;
    let rows = this.#terminal.rows;
    while (rows > active.cursorY + 1 && !active.getLine(active.baseY + rows - 1)?.translateToString(true)) rows--;
    this.#terminal.resize(this.#terminal.cols, Math.max(1, rows));
  }

  get readsAloud() {
    return this.#terminal.options.screenReaderMode;
  }

  set readsAloud(on) {
    this.#terminal.options.screenReaderMode = on;
    writePreference(ONE_TAB, on ? "on" : "off");
  }

  close() {
    this.#sized.disconnect();
    this.hint.remove();
    this.#terminal.dispose();
    this.#close();
  }
}

const SCROLLBAR = 14; // pixels, of xterm
let made = 0;
const clamp = (number, [least, most]) => Math.max(least, Math.min(most, number));
