/** The header of a tool's card: tool, title, state, elapsed time, and the stop button. */

import { button, fill, h, icon, iconButton } from "../dom/elements.js";
import { formatDuration } from "../dom/clock.js";
import { t } from "../dom/texts.js";
import { iconOf, nameOf } from "./call_title.js";

// state -> its label and icon: never shown by colour alone
export const STATES = {
  writing: [t("card.state.writing"), "pencil"],
  next: [t("card.state.next"), "clock"],
  waiting: [t("card.state.waiting"), "bell"],
  running: [t("card.state.running"), "play"],
  done: [t("card.state.done"), "check"],
  handed: [t("card.state.handed"), "play"],
  failed: [t("card.state.failed"), "cross"],
  refused: [t("card.state.refused"), "ban"],
  stopped: [t("card.state.stopped"), "stop"],
  unknown: [t("card.state.unknown"), "warn"],
  unrun: [t("card.state.unrun"), "ban"],
};

let bodies = 0;

export class CardHead {
  /** `onFold(open)` when the reader expands or collapses the card, `onStop()` for its stop button, if it may be stopped. */
  constructor({ body, onFold, onStop }) {
    body.id ||= `card-${++bodies}`;
    this.tool = h("span", { class: "card-tool" });
    this.title = h("span", { class: "card-title", dir: "ltr" });
    this.mark = h("span", { class: "card-mark" });
    this.open = false;
    this.mayStop = onStop !== null;
    const parts = [this.mark, this.tool, this.title, h("span", { class: "card-arrow" }, icon("right"))];
    const props = { class: "card-fold", "aria-expanded": "false", "aria-controls": body.id };
    this.fold = button(parts, () => onFold(!this.open), props);
    this.extra = h("span", { class: "card-extra" });
    this.state = h("span", { class: "card-state" });
    this.time = h("span", { class: "card-time", hidden: true });
    this.stopWords = h("span", {}, t("card.stop.call"));
    const stops = { class: "card-stop", hidden: true, title: t("card.stop.hint") };
    this.stop = button([icon("stop"), this.stopWords], onStop, stops);
    const facts = h("span", { class: "card-facts" }, this.extra, this.state, this.time, this.stop);
    this.element = h("header", { class: "card-head" }, this.fold, facts);
  }

  /** Shows the name and the title of the call. */
  name(name, title) {
    if (this.shownName !== name) fill(this.mark, icon(iconOf(name)));
    this.shownName = name;
    this.tool.textContent = nameOf(name);
    this.title.textContent = title;
  }

  /** Names what the stop button stops: the button of the run stops all of the answer. */
  isCommand(is) {
    this.stopWords.textContent = t(is ? "card.stop.command" : "card.stop.call");
  }

  /** Shows a state of STATES, with another label if given. */
  show(state, words) {
    const [usual, drawing] = STATES[state];
    fill(this.state, icon(drawing), words ?? usual);
    const had = document.activeElement; // hiding must not lose the focus
    this.stop.hidden = state !== "running" || !this.mayStop;
    if (this.answer) this.answer.hidden = state !== "waiting";
    if ([this.stop, this.answer].includes(had) && had.hidden) this.fold.focus({ preventScroll: true });
  }

  /** A way to where a waiting call is decided, as long as it waits. */
  offerAnswer(onAnswer) {
    this.answer?.remove();
    this.answer = button([icon("bell"), t("card.answer")], onAnswer, { class: "card-answer" });
    this.state.after(this.answer);
  }

  /** A branch that begins before this call. */
  offerTry(onTry) {
    this.extra.before(iconButton(t("try.open"), "again", onTry, { class: "quiet card-try" }));
  }

  /** Leaves the title to screen readers. */
  hideTitle(hidden) {
    this.title.classList.toggle("visually-hidden", hidden);
  }

  expand(open) {
    this.open = open;
    this.fold.setAttribute("aria-expanded", String(open));
  }

  /** Seconds, or null to show none; `atLeast`: the real duration is unknown. */
  showTime(seconds, { over = false, atLeast = false } = {}) {
    this.time.hidden = seconds === null || (atLeast && seconds < 1);
    if (this.time.hidden) return;
    const words = over && seconds < 0.095 ? `${Math.round(seconds * 1_000)} ms` : formatDuration(seconds);
    this.time.textContent = atLeast ? t("card.over", { time: words }) : words;
  }
}
