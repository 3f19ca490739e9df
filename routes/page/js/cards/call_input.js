/** A line under the live tail: types into the terminal of a running command. */

import { post } from "../feed/api.js";
import { h } from "../dom/elements.js";
import { t } from "../dom/texts.js";

const MOST = 1_000; // characters that the server takes at once

export class CallInput {
  #path;

  constructor(run, call) {
    this.#path = `/runs/${encodeURIComponent(run)}/calls/${encodeURIComponent(call)}/input`;
    const props = {
      type: "text",
      class: "call-line",
      maxlength: MOST,
      autocomplete: "new-password",
      spellcheck: "false",
    };
    this.line = h("input", { ...props, "aria-label": t("tail.input"), placeholder: t("tail.input") });
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    const key = (words, key) =>
      h("button", { type: "button", class: "quiet", onclick: () => this.#send({ keys: [key] }) }, words);
    const send = h("button", { type: "submit", class: "quiet" }, t("tail.input.send"));
    const form = { class: "call-input", onsubmit: (event) => this.#submit(event) };
    this.form = h("form", form, this.line, send, key("Ctrl-C", "ctrl-c"), key("Ctrl-D", "ctrl-d"));
    this.element = h("div", { hidden: true }, this.form, this.problem);
  }

  /** Shown while the command runs and has a terminal; `hides`: it reads a password. */
  show(shown, hides = false) {
    this.element.hidden = !shown;
    this.line.type = hides ? "password" : "text";
  }

  async #submit(event) {
    event.preventDefault();
    const text = this.line.value;
    if (await this.#send({ text, keys: ["enter"] })) this.line.value = "";
  }

  async #send(input) {
    this.problem.hidden = true;
    try {
      await post(this.#path, input);
      return true;
    } catch (error) {
      this.problem.textContent = error.message;
      this.problem.hidden = false;
      return false;
    }
  }
}
