/** A line and keys under the live tail, behind a button: they type into the terminal of a running command. */

import { button, h, icon } from "../dom/elements.js";
import { Problem } from "../dom/forms.js";
import { t } from "../dom/more_texts.js";

const MOST = 1_000; // characters that the server takes at once
// What has no key on a phone: the name of the key, what stands on the button, and what that means.
const KEYS = [
  ["escape", "Esc"],
  ["tab", "Tab"],
  ["up", "↑", t("tail.key.up")],
  ["down", "↓", t("tail.key.down")],
  ["left", "←", t("tail.key.left")],
  ["right", "→", t("tail.key.right")],
];

export class CallInput {
  /** `link`: a CallTerminal. */
  constructor(link) {
    this.link = link;
    link.onProblem = (error) => this.problem.show(error.message);
    const props = { type: "text", class: "call-line", maxlength: MOST, autocomplete: "new-password" };
    const words = { spellcheck: "false", "aria-label": t("tail.input"), placeholder: t("tail.input") };
    this.line = h("input", { ...props, ...words });
    this.problem = new Problem();
    const key = ([name, words, label]) =>
      button(words, () => this.#send({ keys: [name] }), { class: "quiet", "aria-label": label });
    const send = h("button", { type: "submit", class: "quiet" }, t("tail.input.send"));
    const form = { class: "call-input", onsubmit: (event) => this.#submit(event) };
    const ends = [
      ["ctrl-c", "Ctrl-C"],
      ["ctrl-d", "Ctrl-D"],
    ];
    const keys = h("div", { class: "call-keys", role: "group", "aria-label": t("tail.keys") }, KEYS.map(key));
    this.form = h("form", form, this.line, send, ends.map(key), keys);
    this.element = h("div", { hidden: true }, this.form, this.problem.element);
    const toggle = { class: "quiet tail-button", hidden: true, "aria-expanded": "false" };
    this.button = button([icon("pencil"), t("tail.input.open")], () => this.#toggle(), toggle);
  }

  /** Offered while the command runs and has a terminal; open at once if it reads a password (`hides`). */
  show(shown, hides = false) {
    this.button.hidden = !shown;
    if (shown && hides && this.line.type === "text") this.#open(true);
    if (!shown) this.#open(false);
    this.line.type = hides ? "password" : "text";
  }

  get holdsFocus() {
    return this.element.contains(document.activeElement) || document.activeElement === this.button;
  }

  #toggle() {
    this.#open(this.element.hidden);
    if (!this.element.hidden) this.line.focus();
  }

  #open(open) {
    this.element.hidden = !open;
    this.button.setAttribute("aria-expanded", String(open));
  }

  async #submit(event) {
    event.preventDefault();
    const text = this.line.value;
    if (await this.#send({ text, keys: ["enter"] })) this.line.value = "";
  }

  async #send(input) {
    this.problem.show("");
    try {
      await this.link.send(input);
      return true;
    } catch (error) {
      this.problem.show(error.message);
      return false;
    }
  }
}
