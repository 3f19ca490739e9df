/** A code block with its language, a copy button, and syntax colours while it grows. */

import { copyButton } from "../dom/copy.js";
import { button, h } from "../dom/elements.js";
import { foldButton } from "../dom/forms.js";
import { t } from "../dom/texts.js";
import { codeButtons } from "./code_buttons.js";
import { escapeCode } from "./escape_invisible.js";

const FOLDED = 25,
  SPARE = 5; // lines that a long block shows; so few more are not worth a button
const PART_LINES = 100,
  PART_CHARACTERS = 8_000; // lines and characters that are laid out as one

const PREVIEWS = new Map(
  Object.entries({ html: "html", htm: "html", xhtml: "html", svg: "svg", mermaid: "mermaid", mmd: "mermaid" }),
);

/** The kind of preview that code of this language has, or undefined. */
const previewOf = (language, text) =>
  PREVIEWS.get(language.toLowerCase()) ??
  (language === "xml" && /^\s*(?:<\?xml.*?\?>\s*)?<svg[\s>]/.test(text) ? "svg" : undefined);

/** `text` may be long: it is shown at once, and coloured when there is time for that. */
export function codeBlock(text, language = "") {
  const view = new CodeView(language);
  view.add(text);
  view.close();
  return view.element;
}

/** A block that grows: `add` what is certain, `trial` what may change, `draw` once per frame, `close` in the end. */
export class CodeView {
  #pieces = []; // the raw text, for the copy button
  #waiting = "";
  #part = null;
  #room = { lines: 0, characters: 0 }; // in the last part
  #lines = 0;
  #length = 0; // of what was drawn
  #trial = document.createTextNode("");
  #head;
  #loading = null;
  #painter = null;

  constructor(language = "", { whole = false } = {}) {
    this.language = language;
    this.whole = whole; // never folded
    this.code = h("code", { dataset: { language: language || null } }, this.#trial);
    const label = `${t("code.label")}${language ? `: ${escapeCode(language)}` : ""}`;
    const box = h("pre", { tabindex: 0, "aria-label": label, role: "group" }, this.code);
    const copy = copyButton(t("code.copy"), () => this.text);
    this.#head = h("figcaption", {}, h("span", { class: "code-language" }, escapeCode(language.slice(0, 30))), copy);
    this.element = h("figure", { class: "code", dir: "ltr" }, this.#head, box);
  }

  /** All of it, without its last end of line. */
  get text() {
    return this.#pieces.join("").replace(/\n$/, "");
  }

  add(text) {
    this.#pieces.push(text);
    this.#waiting += text;
  }

  trial(text) {
    this.#trial.data = escapeCode(text);
  }

  draw() {
    const waiting = this.#waiting;
    this.#waiting = "";
    for (let from = 0; from < waiting.length; ) from = this.#put(waiting, from);
    this.element.classList.toggle("code-grows", !this.whole && this.#lines > FOLDED);
    if (!this.language) return;
    this.#loading ??= this.#load();
    this.#painter?.grown(this.#length);
  }

  close() {
    this.trial("");
    this.draw();
    this.element.classList.remove("code-grows");
    if (!this.whole && this.#lines > FOLDED + SPARE) this.#fold();
    const kind = previewOf(this.language, this.#pieces[0] ?? "");
    if (kind) this.#head.lastChild.before(this.#preview(kind));
    if (!this.whole) this.#head.lastChild.before(...codeButtons(this));
    this.#loading?.then(async () => {
      await this.#painter?.close();
      if (this.code.querySelector(".c-added, .c-removed")) (await import("./diff_colours.js")).colourFence(this.code);
    });
  }

  #preview(kind) {
    const toggle = async () => {
      const { togglePreview } = await import("./artefact.js");
      togglePreview({ figure: this.element, toggle: preview, kind, text: () => this.text });
    };
    const preview = button(t("artefact.preview"), toggle, { class: "quiet preview" });
    return preview;
  }

  /** Without its colours code can be read as well. */
  async #load() {
    const module = await import("./highlight.js").catch(() => null);
    this.#painter = module && new module.Painter(this.code, this.language);
    this.#painter?.grown(this.#length);
  }

  /** Puts what fits into the last part. Returns where the next part begins. */
  #put(text, from) {
    if (!this.#part || this.#room.lines <= 0 || this.#room.characters <= 0) {
      this.#room = { lines: PART_LINES, characters: PART_CHARACTERS };
      this.#trial.before((this.#part = h("span", { class: "code-part" })));
    }
    const most = Math.min(text.length, from + this.#room.characters);
    let to = from;
    while (to < most && this.#room.lines > 0) {
      const end = text.indexOf("\n", to) + 1;
      if (!end || end > most) {
        to = most;
        break;
      }
      to = end;
      this.#room.lines -= 1;
      this.#lines += 1;
    }
    this.#room.characters -= to - from;
    this.#length += to - from;
    this.#part.append(escapeCode(text.slice(from, to)));
    return to;
  }

  #fold() {
    const show = () => this.element.scrollIntoView({ block: "nearest" });
    this.element.append(foldButton(this.element, t("show.lines", { lines: this.#lines }), show));
  }
}
