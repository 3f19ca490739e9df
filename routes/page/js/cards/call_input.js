/** A line and keys under the live tail, behind a button: they type into the terminal of a running command. */

import { h, icon } from "../dom/elements.js";
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
    link.onProblem = (error) => this.#fail(error);
    const props = {
      type: "text",
      class: "call-line",
      maxlength: MOST,
      autocomplete: "new-password",
      spellcheck: "false",
    };
    this.line = h("input", { ...props, "aria-label": t("tail.input"), placeholder: t("tail.input") });
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    const key = ([name, words, label]) => {
      const onclick = () => this.#send({ keys: [name] });
      return h("button", { type: "button", class: "quiet", "aria-label": label, onclick }, words);
    };
    const send = h("button", { type: "submit", class: "quiet" }, t("tail.input.send"));
    const form = { class: "call-input", onsubmit: (event) => this.#submit(event) };
    const ends = [
      ["ctrl-c", "Ctrl-C"],
      ["ctrl-d", "Ctrl-D"],
    ];
    const keys = h("div", { class: "call-keys", role: "group", "aria-label": t("tail.keys") }, KEYS.map(key));
    this.form = h("form", form, this.line, send, ends.map(key), keys);
    this.element = h("div", { hidden: true }, this.form, this.problem);
    const toggle = { type: "button", class: "quiet tail-button", hidden: true, "aria-expanded": "false" };
    this.button = h("button", { ...toggle, onclick: () => this.#toggle() }, icon("pencil"), t("tail.input.open"));
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
    this.problem.hidden = true;
    try {
      await this.link.send(input);
      return true;
    } catch (error) {
      this.#fail(error);
      return false;
    }
  }

  #fail(error) {
    this.problem.textContent = error.message;
    this.problem.hidden = false;
  }
}
