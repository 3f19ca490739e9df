/** The line at the top of a tool's card: which tool, for what, how it is, since when; and how to stop it. */

import { fill, h, icon } from "../dom/elements.js";
import { formatDuration } from "../dom/clock.js";
import { iconOf, nameOf } from "./call_title.js";

// state -> its word and its icon: never told by colour alone
export const STATES = {
  writing: ["writing", "pencil"],
  next: ["queued", "clock"],
  waiting: ["waiting for you", "bell"],
  running: ["running", "play"],
  done: ["done", "check"],
  failed: ["failed", "cross"],
  refused: ["refused", "ban"],
  stopped: ["stopped", "stop"],
  unknown: ["outcome unknown", "warn"],
  unrun: ["not run", "ban"],
};

let bodies = 0;

export class CardHead {
  /** `onFold(open)` when the reader opens or folds the card, `onStop()` for its stop button. */
  constructor({ body, onFold, onStop }) {
    body.id ||= `card-${++bodies}`;
    this.tool = h("span", { class: "card-tool" });
    this.title = h("span", { class: "card-title", dir: "ltr" });
    this.mark = h("span", { class: "card-mark" });
    this.open = false;
    const onclick = () => onFold(!this.open);
    const props = { type: "button", class: "card-fold", "aria-expanded": "false", "aria-controls": body.id, onclick };
    this.fold = h("button", props, h("span", { class: "card-arrow" }, icon("right")), this.mark, this.tool, this.title);
    this.extra = h("span", { class: "card-extra" });
    this.state = h("span", { class: "card-state" });
    this.time = h("span", { class: "card-time", hidden: true });
    this.stop = h(
      "button",
      { type: "button", class: "card-stop", onclick: onStop, hidden: true, "aria-label": "Stop this run" },
      icon("stop"),
      h("span", {}, "Stop"),
    );
    const facts = h("span", { class: "card-facts" }, this.extra, this.state, this.time, this.stop);
    this.element = h("header", { class: "card-head" }, this.fold, facts);
  }

  /** The name and the line of the call. */
  name(name, title) {
    if (this.shownName !== name) fill(this.mark, icon(iconOf(name)));
    this.shownName = name;
    this.tool.textContent = nameOf(name);
    this.title.textContent = title;
  }

  /** A state of STATES, with other words for it if there are any. */
  show(state, words) {
    const [usual, drawing] = STATES[state];
    fill(this.state, icon(drawing), words ?? usual);
    const focused = document.activeElement === this.stop;
    this.stop.hidden = state !== "running";
    if (focused && this.stop.hidden) this.fold.focus({ preventScroll: true }); // what goes takes no focus with it
  }

  expand(open) {
    this.open = open;
    this.fold.setAttribute("aria-expanded", String(open));
  }

  /** Seconds, null where there are none to tell; `atLeast`: nobody knows how many more. */
  tell(seconds, { over = false, atLeast = false } = {}) {
    this.time.hidden = seconds === null || (atLeast && seconds < 1);
    if (this.time.hidden) return;
    const words = over && seconds < 0.095 ? `${Math.round(seconds * 1_000)} ms` : formatDuration(seconds);
    this.time.textContent = atLeast ? `over ${words}` : words;
  }
}
