/** One run: the words it was asked for with, and what its events make of it. A handler for each type of event. */

import { post } from "../feed/api.js";
import { h, announce } from "../dom/elements.js";
import { Answer, Reasoning, userMessage } from "./message.js";
import { ending, Note, summarised, trimmed, turnFoot, Working } from "./run_notes.js";
import { ToolCard } from "../cards/tool_card.js";

const HANDLERS = {
  "run.started": (view, event) => view.start(event),
  "round.started": (view) => view.close(),
  "text.delta": (view, { text }) => view.write(Answer, text),
  "reasoning.delta": (view, { text }) => view.write(Reasoning, text),
  "message.added": (view, event) => view.heard(event),
  "tool.delta": (view, event) => view.card(event.call, event.name).write(event),
  "tool.started": (view, event) => view.card(event.call, event.name).start(event),
  "tool.progress": (view, event) => view.card(event.call).progress(event),
  "tool.finished": (view, event) => view.over(event.call, event.name).finish(event),
  "tool.rejected": (view, event) => view.over(event.call ?? `rejected-${event.seq}`, event.name).reject(event),
  "approval.required": (view, event) => view.asking(event.call, event.name).ask(event),
  "approval.resolved": (view, event) => view.resolved(event),
  "context.trimmed": (view, event) => view.less(event, trimmed(event)),
  "context.summarised": (view, event) => view.less(event, summarised(event, view.asked.session)),
  notice: (view, event) => view.note(event.code, event.message),
  "document.updated": () => undefined, // the same text is in text.delta
  usage: (view, event) => view.used(event),
  "run.finished": (view, event) => view.end(event),
  "run.failed": (view, event) => view.end(event),
};
const SHOWN_ELSEWHERE = new Set(["queued"]); // notices of what the view itself shows
const WAITING_TEXTS = { sending: "Sending", queued: "Queued" };

export class RunView {
  seq = 0;
  restoring = false; // its events come from the log: nothing of them is news
  started = null;
  ended = null; // its terminal event
  usage = null; // its last `usage`
  #part = null;
  #note = null;
  #blankText = "";
  #cards = new Map();
  #open = new Set(); // calls that are not answered
  #steers = []; // messages for this run that it has not read
  #working = new Working();
  #message = null;
  #cancelButton = null;

  /** `asked`: what `run.asked` says; `run` is null while the message is on its way. */
  constructor(asked, page) {
    this.page = page;
    this.body = h("div", { class: "run-body" });
    this.waiting = h("div", { class: "run-waiting" });
    const heading = h("h2", { class: "visually-hidden" }, "Answer"); // by which screen readers go from turn to turn
    const parts = [heading, this.body, this.#working.element, this.waiting];
    this.element = h("article", { class: "run", "aria-label": "Turn" }, parts);
    this.begin(asked);
  }

  /** The server knows it (more exactly) now. */
  begin(asked) {
    const shown = this.asked?.message;
    this.asked = asked;
    if (asked.run) this.element.dataset.run = asked.run;
    if (asked.message && (!shown || asked.message.attachments?.length)) this.#showMessage(asked);
    if (asked.run && asked.state === "queued") this.#offerCancel(asked.run);
    this.#updateWorking();
  }

  #offerCancel(run) {
    if (this.#cancelButton) return;
    const onclick = async () => {
      this.#cancelButton.disabled = true;
      try {
        await post(`/runs/${run}/cancel`);
        if (!this.started) this.end({ type: "run.finished", reason: "cancelled" }); // its log is told later
      } catch (error) {
        this.note("take_back", error.message);
      }
      this.#updateWorking();
    };
    this.#cancelButton = h("button", { type: "button", class: "cancel-queued", onclick }, "Cancel");
    this.#working.element.append(this.#cancelButton);
  }

  #showMessage({ message, session }) {
    this.#message?.remove();
    this.#message = userMessage(message, session);
    if (message.files?.length) this.#message.append(h("p", { class: "faint", dir: "auto" }, message.files.join(" · ")));
    this.element.prepend(this.#message);
  }

  add(event) {
    this.seq = event.seq;
    HANDLERS[event.type]?.(this, event);
    if (!this.restoring) this.#updateWorking();
  }

  /** All that the log has is shown: from here on what comes is news. */
  restored() {
    this.restoring = false;
    this.#updateWorking();
  }

  start(event) {
    this.started = event;
    this.asked = { ...this.asked, state: "running" };
    this.#cancelButton?.remove();
  }

  /** Empty lines between calls are no part of their own: they wait for the words behind them. */
  write(Kind, text) {
    const words = this.#blankText + text;
    this.#blankText = "";
    if (this.#part instanceof Kind || words.trim()) this.part(Kind).add(words);
    else this.#blankText = words;
  }

  /** The open part of this kind: text goes on where it was, unless something came between. */
  part(Kind) {
    if (!(this.#part instanceof Kind)) {
      this.close();
      this.#part = new Kind(this);
      this.append(this.#part.element);
    }
    return this.#part;
  }

  /** Ends the part that text goes into. */
  close() {
    this.#part?.close();
    this.#part = null;
    this.#blankText = "";
  }

  append(element) {
    if (this.#part && element !== this.#part.element) this.close();
    if (element !== this.#note?.element) this.#note = null;
    this.body.append(element);
  }

  /** On its card, and for the tray, where it may still be asked. */
  resolved(event) {
    this.asking(event.call).resolve(event);
    if (!this.restoring) this.page.store.set({ resolved: { run: this.asked.run, ...event } });
  }

  /** The card of a call, made when it is first heard of. */
  card(call, name) {
    let card = this.#cards.get(call);
    if (!card) {
      card = new ToolCard(call, name ?? "tool", this);
      this.#cards.set(call, card);
      this.#open.add(call);
      this.append(card.element);
    }
    return card;
  }

  /** The card that a question is about: one that is asked again has `~2` or `~3` behind the call's id. */
  asking(call, name) {
    return this.card(this.#cards.has(call) ? call : call.replace(/~[23]$/, ""), name);
  }

  /** The card of a call that has its answer now. */
  over(call, name) {
    const card = this.card(call, name);
    this.#open.delete(call);
    return card;
  }

  /** One line for several that tell the same, one after the other. */
  note(code, words) {
    if (SHOWN_ELSEWHERE.has(code)) return;
    if (this.#note?.code === code) return this.#note.again(words);
    const note = new Note(code, words);
    this.append(note.element);
    this.#note = note;
  }

  /** The model is sent less of the conversation than there is: `element` says it. Earlier runs may be drawn later. */
  less(event, element) {
    this.append(element);
    const { store } = this.page,
      { created } = this.asked;
    if (created >= (store.get("context")?.created ?? 0)) store.set({ context: { ...event, created } });
  }

  used(event) {
    this.usage = event;
    const { run, created } = this.asked;
    const from = { run, created, model: this.started?.model, restored: this.restoring };
    this.page.store.set({ usage: { ...event, ...from } });
  }

  /** A message for this run, shown at once. Returns how to take it back. */
  steer(text) {
    const words = h("p", { class: "note" }, "The model reads this after the current step.");
    const element = h("div", { class: "steer" }, userMessage({ text }, this.asked.session, { steered: true }), words);
    const steer = { text, element };
    this.#steers.push(steer);
    this.waiting.append(element);
    return () => {
      this.#steers = this.#steers.filter((one) => one !== steer);
      element.remove();
    };
  }

  /** The run has read a message: the one that was sent from here stands in its place from now on. */
  heard(event) {
    const mine = this.#steers.find(({ text }) => text === event.text);
    this.#steers = this.#steers.filter((one) => one !== mine);
    mine?.element.remove();
    this.append(userMessage(event, this.asked.session, { steered: true }));
  }

  end({ ...event }) {
    if (this.ended) return;
    this.close();
    if (event.reason === "cancelled" && !this.started) event.reason = "taken_back";
    this.ended = event;
    this.#cancelButton?.remove();
    for (const card of this.#cards.values()) card.runEnded();
    const { composer } = this.page;
    const line = ending(event, {
      again: () => composer.again(this.asked),
      described: () => composer.again(this.asked, { without_vision: "describe" }),
      goOn: () => composer.send("Continue."),
    });
    if (line) this.append(line);
    for (const { element } of this.#steers) element.querySelector(".note").textContent = "Kept for the next turn.";
    if (this.started) this.append(turnFoot(this.#facts(event)));
    if (!this.restoring) announce(event.type === "run.failed" ? "The run failed." : "The answer is complete.");
  }

  /** Clocks differ: the server's times are set against each other, and the browser's only where those are missing. */
  #facts({ usage }) {
    const { created, ended } = this.asked;
    const seconds = ended ? ended - created : this.#seconds();
    const total = this.usage && {
      prompt_tokens: this.usage.total_prompt_tokens,
      completion_tokens: this.usage.total_completion_tokens,
      measured: this.usage.measured,
      cost: this.usage.total_cost,
    };
    return { model: this.started.model, created, seconds, usage: { ...total, ...usage } };
  }

  #seconds() {
    return Math.max(0, Date.now() / 1000 - this.asked.created);
  }

  /** The page shows something else now: nothing of this ticks on, or is kept by what ticks. */
  leave() {
    this.close();
    for (const card of this.#cards.values()) card.leave();
    this.#working.hide();
  }

  /** What is under way without anything to see of it is said. */
  #updateWorking() {
    const waits = this.started ? null : WAITING_TEXTS[this.asked.state];
    this.element.classList.toggle("waiting", Boolean(waits));
    if (this.ended || (!waits && (this.#part || this.#open.size))) return this.#working.hide();
    this.#working.show(waits ?? "Thinking");
  }
}
