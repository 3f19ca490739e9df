/**
 * Formulas: `$x$`, `$$x$$`, `\(x\)` and `\[x\]`, in lines or as blocks. What is none stays text: prices, variables of
 * a shell. The source is shown until a formula is closed and text/formula.js, fetched with the first, has drawn it.
 */

import { copyButton } from "../dom/copy.js";
import { h } from "../dom/elements.js";
import { t } from "../dom/texts.js";
import { escapeCode } from "../text/escape_invisible.js";

const DOLLARS = /\$\$[^$]+\$\$|\$(?![\s$])(?:[^$\\\n]|\\.)*(?<!\s)\$(?![\p{L}\p{N}])/uy;
const LONGEST = 500; // characters of a formula without an end
const MONEY = /^\$\d[\d.,]*(?![^$]*[\\^_={}<>+])[^$]*\p{L}{2}/u; // `$5 or 6$`: an amount and words, no signs
const BRACKETS = { "(": "\\)", "[": "\\]" };
const BLOCK = /^(?:\$\$(.+)\$\$|\\\[(.+)\\\])$/s;

let drawing = null; // text/formula.js, once it has what it needs

/** `$x$`, but neither money nor variables of a shell. */
export function dollars(text, at) {
  if (/[\p{L}\p{N}]/u.test(text[at - 1] ?? " ")) return null;
  DOLLARS.lastIndex = at;
  const written = DOLLARS.exec(text)?.[0];
  if (!written || MONEY.test(written)) return null;
  const marks = written.startsWith("$$") ? 2 : 1;
  return { node: math(written, written.slice(marks, -marks), marks === 2), end: at + written.length };
}

/** `\(x\)` and `\[x\]`; in text that is still growing up to its end. */
export function brackets(text, at, open) {
  const close = BRACKETS[text[at + 1]];
  const found = close ? text.indexOf(close, at + 2) : -1;
  if (close && found < 0 && open && text.length - at < LONGEST)
    return { node: source(text.slice(at)), end: text.length };
  if (found < 0 || !text.slice(at + 2, found).trim()) return null;
  const node = math(text.slice(at, found + 2), text.slice(at + 2, found), close === "\\]");
  return { node, end: found + 2 };
}

/** A line that begins a block: `formula` ends it. */
export function formula({ words }) {
  const opener = /^(?:\$\$(?!\$)|\\\[)/.exec(words)?.[0];
  if (!opener) return null;
  const end = opener === "$$" ? "$$" : "\\]",
    found = words.indexOf(end, 2);
  if (found < 0 && end === "\\]" && closesMore(words.slice(2))) return null; // `\[x]` is brackets around x
  if (found >= 0 && found !== words.trimEnd().length - 2) return null;
  return { kind: "code", formula: end, view: new FormulaView() };
}

const closesMore = (text) => text.split("]").length > text.split("[").length;

const source = (written) => h("code", { class: "math", dir: "ltr" }, escapeCode(written));

function math(written, tex, display) {
  const drawn = drawing?.drawnFormula(written, tex, display);
  if (drawn) return drawn;
  const element = source(written);
  draw({ element, written, tex, display });
  return element;
}

/** Replaces the element by the formula, as soon as that can be. */
async function draw(wanted) {
  try {
    const module = await import("../text/formula.js");
    await module.ready();
    drawing = module;
    module.drawLater(wanted);
  } catch {
    // It could not be loaded: the source stays.
  }
}

/** A formula of its own lines, as a view of what is written. */
class FormulaView {
  #text = "";
  #shown = 0;
  #code = h("code");
  #trial = document.createTextNode("");

  constructor() {
    const box = { tabindex: 0, role: "group", "aria-label": t("formula.name") };
    this.element = h("div", { class: "formula", dir: "ltr" }, h("pre", box, this.#code));
    this.#code.append(this.#trial);
  }

  add(text) {
    this.#text += text;
  }

  trial(text) {
    this.#trial.data = escapeCode(text);
  }

  draw() {
    const more = this.#text.slice(this.#shown);
    this.#shown = this.#text.length;
    if (more) this.#trial.before(escapeCode(more));
  }

  close() {
    this.trial("");
    this.draw();
    const written = this.#text.trim();
    this.element.append(copyButton(t("formula.copy"), () => written));
    const [, dollared, bracketed] = BLOCK.exec(written) ?? [];
    const tex = dollared ?? bracketed;
    if (tex) draw({ element: this.#code, written, tex, display: true });
  }
}
