/** One call of a tool, from the first piece of its arguments to its result. */

import { h } from "./dom.js";

export class ToolCard {
  constructor(call, name, view) {
    Object.assign(this, { call, name, view });
    this.state = h("span", { class: "card-state" }, "…");
    this.argumentsText = h("pre", { class: "card-arguments" });
    this.tail = h("pre", { class: "tail" });
    this.element = h("section", { class: "card", dataset: { call }, "aria-label": name }, h("header", {}, name, " ", this.state), this.argumentsText, this.tail);
  }

  /** A piece of the arguments, as the model writes them. */
  write({ text }) {
    this.argumentsText.append(text);
  }

  start({ arguments: given }) {
    this.argumentsText.textContent = JSON.stringify(given, null, 2);
    this.state.textContent = "running";
  }

  progress({ tail }) {
    this.tail.textContent = tail.join("\n");
  }

  finish({ ok, text }) {
    this.state.textContent = ok ? "done" : "failed";
    this.tail.textContent = text;
  }

  reject({ reason }) {
    this.state.textContent = "refused";
    this.tail.textContent = reason;
  }

  /** The call waits for a person. */
  ask(event) {
    this.state.textContent = "waits for you";
  }

  resolve(event) {
    this.state.textContent = event.decision;
  }

  /** The run is over: whatever the card still shows as under way is not any more. */
  runEnded() {}
}
