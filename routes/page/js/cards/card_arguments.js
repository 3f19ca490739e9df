/** The arguments of a tool call: first as they stream in, then as parsed. */

import { inWords } from "./call_title.js";
import { codeBlock } from "../text/code.js";
import { changeDiff } from "../text/diff.js";
import { button, fill, h, icon } from "../dom/elements.js";
import { escapeText } from "../text/exact_text.js";
import { StreamingText } from "./streaming_text.js";
import { fileLanguage } from "../text/file_language.js";
import { PartialObject } from "./partial_json.js";
import { PartialTags } from "./partial_tags.js";
import { t, ts } from "../dom/texts.js";

const TITLE_PART = 400; // characters of a field that a title can use
const MOST_ROWS = 100;
// tool name -> the argument that models also write without JSON around it
const RAW = { bash: "command", python: "code" };
// fields that the title of the card shows in full
const IN_TITLE = new Set(["path", "url", "query", "id", "call"]);
// labels of fields
const FIELDS = { ...ts("card.field", ["old", "new", "content"]), code: "", command: "" };

const command = (words) => foldable(h("pre", { class: "command", dir: "ltr", tabindex: 0 }), words);

// tool name -> renders its main argument, and returns the others
const RENDERERS = {
  bash: ({ command: words, ...rest }) => [words === undefined ? null : command(String(words)), inWords(rest)],
  python: ({ code, ...rest }) => [code === undefined ? null : codeBlock(String(code), "python"), inWords(rest)],
  write_file: ({ content, ...rest }) => [codeBlock(String(content ?? ""), fileLanguage(rest.path)), rest],
  edit_file: ({ old, new: after, ...rest }) => [changeDiff(String(old ?? ""), String(after ?? "")), rest],
};

export class CardArguments {
  /** The streamed fields, as far as a title needs them. */
  fields = Object.create(null);
  #name;
  #boxes = new Map();
  #reader = new PartialObject(this);
  #raw = []; // buffered until it is clear whether it is JSON
  #isObject = false;
  #failed = false;

  constructor(name) {
    this.#name = name;
    this.element = h("div", { class: "card-arguments", hidden: true });
  }

  /** A streamed piece: JSON, or the text itself. */
  write(text) {
    if (!text) return;
    this.element.hidden = false;
    if (this.#failed) this.#appendRaw(text);
    else {
      if (!this.#isObject) this.#raw.push(text);
      this.#reader.feed(text);
    }
  }

  /** The parsed arguments; `by` has changed them. */
  settle(given, { by = null } = {}) {
    this.fields = given ?? {};
    this.#boxes.clear();
    const drawn = Object.hasOwn(RENDERERS, this.#name) && RENDERERS[this.#name](this.fields);
    const [main, rest] = drawn || [null, this.fields];
    const rows = Object.entries(rest).filter(([name, value]) => !IN_TITLE.has(name) || typeof value !== "string");
    const note = by && h("p", { class: "card-note" }, t("card.changed_by", { by }));
    fill(this.element, note, main, rows.length ? table(rows) : null);
    this.element.hidden = !this.element.childNodes.length;
  }

  // Callbacks of PartialObject.

  open(name) {
    this.#isObject = true;
    const label = Object.hasOwn(FIELDS, name) ? FIELDS[name] : name;
    if (IN_TITLE.has(name)) this.#boxes.set(name, null);
    else if (this.element.childElementCount < MOST_ROWS) this.#boxes.set(name, this.#box(label, name));
    this.fields[name] = "";
  }

  text(name, piece) {
    this.#boxes.get(name)?.append(piece);
    if (this.fields[name].length < TITLE_PART) this.fields[name] += piece;
  }

  restart() {
    this.fields = Object.create(null);
    this.#boxes.clear();
    fill(this.element);
  }

  failed() {
    if (this.#isObject) return; // the fields that were parsed stay visible
    const raw = this.#raw.splice(0).join("");
    this.#failed = !/^\s*</.test(raw);
    if (this.#failed) return void this.#appendRaw(raw);
    this.#reader = new PartialTags(this);
    this.#reader.feed(raw);
  }

  /** Text that is not JSON: the only argument of some tools, else shown as it is. */
  #appendRaw(text) {
    const name = Object.hasOwn(RAW, this.#name) ? RAW[this.#name] : "";
    if (!this.#boxes.has(name)) this.open(name);
    this.text(name, text);
  }

  #box(label, name) {
    const growing = new StreamingText(name || t("card.arguments"));
    const words = label && h("span", { class: "card-field" }, escapeText(label));
    this.element.append(h("div", { class: "card-streaming" }, words || null, growing.element));
    return growing;
  }
}

/** `key: value` rows; values other than strings are shown as JSON. */
export function table(rows) {
  const more = rows.length - MOST_ROWS;
  return [
    h("dl", { class: "card-rows" }, rows.slice(0, MOST_ROWS).map(rowOf)),
    more > 0 ? h("p", { class: "card-note" }, t("card.more", { count: more })) : null,
  ];
}

function rowOf([name, value]) {
  return [h("dt", { dir: "auto" }, escapeText(name.slice(0, TITLE_PART))), h("dd", { dir: "auto" }, shownValue(value))];
}

function shownValue(value) {
  if (typeof value === "string" && !value.includes("\n") && value.length < 200) return escapeText(value);
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return foldable(h("pre", { tabindex: 0 }), text);
}

const LINES = 10;
const CHARACTERS = 1_500;
const FOLDED = 4_000; // characters laid out while collapsed
const MOST = 200_000; // and while expanded

/** The block with this text, escaped; a long text gets a button that expands and collapses it. */
function foldable(block, text) {
  const lines = text.split("\n").length;
  const show = (open) => (block.textContent = shortened(text, open));
  show(false);
  if (lines <= LINES + 2 && text.length <= CHARACTERS) return block;
  const words = lines > LINES + 2 ? t("show.lines", { lines }) : t("show.all");
  const toggle = () => {
    const open = box.classList.toggle("open");
    show(open);
    fold.lastChild.textContent = open ? t("show.less") : words;
    fold.setAttribute("aria-expanded", String(open));
  };
  const fold = button([icon("more"), words], toggle, { class: "quiet fold-button", "aria-expanded": "false" });
  const box = h("div", { class: "folding" }, block, fold);
  return box;
}

function shortened(text, open) {
  const left = text.length - MOST;
  const rest = open && left > 0 ? `\n[${t("card.more_characters", { count: left })}]` : "";
  return escapeText(text.slice(0, open ? MOST : FOLDED)) + rest;
}
