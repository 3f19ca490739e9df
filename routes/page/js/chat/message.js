/** Messages: those of the user, the answers as they stream in, and collapsed reasoning. */

import { fileElement } from "../cards/message_files.js";
import { formatDuration, startTicking } from "../dom/clock.js";
import { copyButton } from "../dom/copy.js";
import { h, onNextFrame } from "../dom/elements.js";
import { foldButton } from "../dom/forms.js";
import { readPreference, writePreference } from "../dom/storage.js";
import { t } from "../dom/texts.js";
import { PacedText } from "./paced_text.js";
import { StreamedText } from "./streamed_text.js";
import { Markdown } from "../markdown/markdown.js";
import { escapeProse } from "../text/escape_invisible.js";

const MAX_CHARACTERS = 1_200,
  MAX_LINES = 12; // characters and lines, from which on a message is collapsed
const PART = 8_000; // characters of a long message that is folded
// Messages that the server has written for the model, by what their first line is of.
const WRITTEN = {
  from_job: /^The background job \S{1,80} has ended after [\d.]+ s: [^\n]{1,400}/,
  from_reminder: /^The reminder "[^\n]{1,80}" is due: [^\n]{1,200}/,
};

/** A message of the user as plain text. `message`: `{text, attachments?}`; of an `app`, `shown` are the words of it. */
export function userMessage({ text = "", shown, app, attachments = [] }, session, { steered = false } = {}) {
  if (app) return appMessage(t("message.from_app", { server: escapeProse(app) }), shown ?? text);
  for (const [kind, pattern] of Object.entries(WRITTEN)) {
    const first = pattern.exec(text)?.[0];
    if (first) return writtenMessage(kind, first, text);
  }
  const files = attachments.map((one) => fileElement(one, session));
  const name = t(steered ? "message.you.steered" : "message.you");
  return h(
    "div",
    { class: steered ? "user-message steered" : "user-message", role: "group", "aria-label": name },
    steered && h("p", { class: "steered-mark" }, t("message.steered")),
    files.length > 0 && h("div", { class: "user-files" }, files),
    text && foldable(text),
  );
}

/** The end of a background job, or the time of a reminder, starts a turn as well, with a message for the model. */
function writtenMessage(kind, first, text) {
  const written = h("pre", { class: "user-text", dir: "auto", tabindex: 0 }, escapeProse(text));
  const whole = h("details", {}, h("summary", {}, t("message.for_model")), written);
  const props = { class: "user-message from-job", role: "group", "aria-label": t(`message.${kind}`) };
  return h("div", props, h("p", { dir: "auto" }, escapeProse(first)), whole);
}

function appMessage(label, text) {
  const props = { class: "user-message from-job", role: "group", "aria-label": label };
  return h("div", props, h("p", { class: "faint" }, label), foldable(text));
}

function foldable(text) {
  const rest = text.length > 2 * PART;
  const words = h("p", { class: "user-text", dir: "auto" }, escapeProse(rest ? text.slice(0, PART) : text));
  if (text.length <= MAX_CHARACTERS && text.split("\n", MAX_LINES + 1).length <= MAX_LINES) return words;
  const fold = foldButton(words, t("show.all"));
  if (rest) fold.addEventListener("click", () => words.replaceChildren(...partsOf(text)), { once: true });
  return [words, fold];
}

/** Parts of whole lines, of which only those in view are laid out. */
const partsOf = (text) =>
  text.match(/.{1,8000}[^\n]*\n?/gs).map((part) => h("span", { class: "user-part", dir: "auto" }, escapeProse(part)));

/** An answer: `add` text while it streams, `close` at its end. */
export class Answer {
  #streamed = new StreamedText();
  #markdown = new Markdown();
  #flow = new PacedText(this.#markdown);
  #closed = false;

  constructor() {
    const copy = copyButton(t("message.copy"), () => this.text);
    this.element = h("div", { class: "answer" }, this.#markdown.element, h("div", { class: "answer-tools" }, copy));
  }

  /** The raw Markdown. */
  get text() {
    return this.#streamed.text;
  }

  add(text) {
    this.#streamed.add(text);
    this.#flow.add(text);
  }

  /** Takes back the last `count` characters, and draws what is left anew. Returns how many there were. */
  takeBack(count) {
    const taken = this.#streamed.takeBack(count);
    this.#flow.drop();
    const drawn = this.#markdown.element;
    this.#markdown = new Markdown();
    this.#flow = new PacedText(this.#markdown);
    this.#flow.add(this.text);
    if (this.#closed) this.#flow.close();
    drawn.replaceWith(this.#markdown.element);
    return taken;
  }

  close() {
    this.#closed = true;
    this.element.classList.add("complete");
    this.#flow.close();
  }
}

const FOLDED = "reasoning"; // the preference of a person who has folded reasoning while it was written

/** The reasoning of the model before an answer: open while it is written, folded behind it. */
export class Reasoning {
  #began;
  #stop;
  #empty = true;
  #chosen = false; // the person has opened or folded it
  #words = new Markdown("markdown reasoning-text");
  #flow = new PacedText(this.#words);

  /** `folded`: from the beginning. */
  constructor(view, folded = false) {
    const live = !view?.restoring;
    this.#began = live ? performance.now() : null;
    this.title = h("span", {}, t("reasoning.live"));
    const summary = h("summary", { onclick: () => this.#choose() }, this.title);
    this.box = h("div", { class: "reasoning-box", tabindex: 0 }, this.#words.element);
    const open = live && !folded && readPreference(FOLDED) !== "folded";
    this.element = h("details", { class: "reasoning thinking", open }, summary, this.box);
    if (live) this.#stop = startTicking(() => onNextFrame(this.#tick));
  }

  /** While it is written, the choice holds for all that is written later. */
  #choose() {
    this.#chosen = true;
    if (this.#began !== null) writePreference(FOLDED, this.element.open ? "folded" : null);
  }

  add(text) {
    this.#empty = false;
    this.#flow.add(text);
  }

  focus() {
    this.element.firstElementChild.focus({ preventScroll: true });
  }

  close() {
    if (this.#empty) this.element.remove();
    const took = this.#elapsed();
    this.#stop?.();
    this.#began = null;
    this.element.classList.remove("thinking");
    this.box.removeAttribute("tabindex"); // it scrolls no more
    if (!this.#chosen) this.element.open = false;
    this.title.textContent = took === null ? t("reasoning.title") : t("reasoning.took", { time: took });
    this.#flow.close();
  }

  #elapsed() {
    const took = this.#began === null ? 0 : (performance.now() - this.#began) / 1000;
    return took < 1 ? null : formatDuration(took);
  }

  #tick = () => {
    if (this.#began !== null) this.title.textContent = `${t("reasoning.live")} ${this.#elapsed() ?? ""}`;
  };
}
