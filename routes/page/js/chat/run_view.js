/** The view of a run: its message and the elements that its events create. One handler per type of event. */

import { post } from "../feed/api.js";
import { announce, button, h } from "../dom/elements.js";
import { t, ts } from "../dom/texts.js";
import { Answer, Reasoning, userMessage } from "./message.js";
import { messageTools, tryFrom, turnTools } from "./turn_tools.js";
import { StreamedText } from "./streamed_text.js";
import { ending, Note, reviewButton, summarised, trimmed, turnFoot, Working } from "./run_notes.js";
import { OwnerFiles } from "./owner_files.js";
import { Plan } from "./plan.js";
import { foldSteps } from "./steps.js";
import { fileElement } from "../cards/message_files.js";
import { ToolCard } from "../cards/tool_card.js";

const HANDLERS = {
  "run.started": (view, event) => view.start(event),
  "round.started": (view) => view.close(),
  "text.delta": (view, { text, call }) => (call ? view.addBlock(text) : view.write(Answer, text)),
  "reasoning.delta": (view, { text }) => view.write(Reasoning, text),
  "text.reclassified": (view, { characters }) => view.reclassify(characters),
  "message.added": (view, event) => view.addSteered(event),
  "tool.delta": (view, event) => view.card(event.call, event.name).write(event),
  "tool.started": (view, event) => view.card(event.call, event.name).start(event),
  "tool.progress": (view, event) => view.card(event.call).progress(event),
  "tool.finished": (view, event) => view.finish(event),
  "tool.app": (view, event) => view.card(event.call, event.name).showApp(event),
  "tool.handed": (view, event) => view.finishedCard(event.call, event.name).hand(event),
  "tool.rejected": (view, event) => view.finishedCard(event.call ?? `rejected-${event.seq}`, event.name).reject(event),
  image: (view, event) => (event.call ? view.card(event.call) : view).showPicture(event),
  "file.changed": (view, event) => view.changeFile(event),
  "approval.required": (view, event) => view.approvalCard(event.call, event.name).ask(event),
  "approval.resolved": (view, event) => view.resolved(event),
  "context.trimmed": (view, event) => view.contextReduced(event, trimmed(event)),
  "context.summarised": (view, event) => view.contextReduced(event, summarised(event, view.asked.session)),
  notice: (view, event) => view.note(event),
  "labels.added": (view, event) => view.labelled(event),
  "helper.started": (view, event) => view.helper(event),
  "helper.approval": (view, event) => view.helper(event),
  "helper.finished": (view, event) => view.helper(event),
  plan: (view, event) => view.plan(event),
  "document.updated": (view, event) => view.documentBlock(event),
  "document.started": (view, event) => view.document(event),
  "document.delta": (view, event) => view.document(event),
  "document.finished": (view, event) => view.document(event),
  "document.changed": (view, event) => view.document(event),
  "document.suggested": (view, event) => view.document(event),
  usage: (view, event) => view.used(event),
  "run.finished": (view, event) => view.end(event),
  "run.failed": (view, event) => view.end(event),
};
const PROJECT = "project_files"; // the notice of instructions that wait for a decision
const FORK = "fork"; // the notice of a run that works in a folder of its own
const SHOWN_ELSEWHERE = new Set(["queued"]); // notices that the view shows in another way
const WAITING_TEXTS = ts("run", ["sending", "queued"]);

export class RunView {
  seq = 0;
  restoring = false; // its events come from the log: they are not announced
  started = null;
  ended = null; // its terminal event
  isFork = false;
  usage = null; // its last `usage`
  log = null; // its events, where they are not to be fetched
  #part = null;
  #note = null;
  #plan = null; // the model's list of steps
  #steps = null; // the last ones of it
  #blank = null; // blank text that is held back: `{ Kind, text }`
  #texts = []; // all, in order: answers, and blank text that was not shown
  #cards = new Map();
  #open = new Set(); // calls without a result
  #steers = []; // messages that the run has not read yet
  #working = new Working();
  #retryWaits = false; // a notice counts the seconds down
  #message = null;
  #tools = null; // what can be done with the message
  #changesFiles = false;
  #ownerFiles = new OwnerFiles();
  #cancelButton = null;

  /** `asked`: the data of `run.asked`; `run` is null until the server has accepted the message. */
  constructor(asked, page) {
    this.page = page;
    this.body = h("div", { class: "run-body" });
    this.waiting = h("div", { class: "run-waiting" });
    const heading = h("h2", { class: "visually-hidden" }, t("run.answer")); // screen readers navigate by it
    const parts = [heading, this.body, this.#working.element, this.waiting];
    this.element = h("article", { class: "run", "aria-label": t("run.turn") }, parts);
    this.begin(asked);
  }

  /** Updates the data of the run once the server has confirmed it. */
  begin(asked) {
    const shown = this.asked?.message;
    this.asked = asked;
    if (asked.run) this.element.dataset.run = asked.run;
    if (asked.message && (!shown || asked.message.attachments?.length)) this.#showMessage(asked);
    if (asked.run && asked.message && !this.#tools && !this.page.readOnly)
      this.#message.after((this.#tools = messageTools(this)));
    if (asked.run && asked.state === "queued") this.#offerCancel(asked.run);
    this.#updateWorking();
  }

  #offerCancel(run) {
    if (this.#cancelButton) return;
    const cancel = async () => {
      this.#cancelButton.disabled = true;
      try {
        await post(`/runs/${run}/cancel`);
        if (!this.started) this.end({ type: "run.finished", reason: "cancelled" }); // its events arrive later
      } catch (error) {
        this.note({ code: "take_back", message: error.message });
      }
      this.#updateWorking();
    };
    this.#cancelButton = button(t("run.cancel"), cancel, { class: "cancel-queued" });
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

  /** The log has been replayed: events are live from here on. */
  restored() {
    this.restoring = false;
    this.#updateWorking();
  }

  start(event) {
    this.started = event;
    if (event.source) this.element.dataset.source = event.source;
    this.asked = { ...this.asked, state: "running" };
    this.#cancelButton?.remove();
  }

  /** Blank text between calls is held back until other text of its kind follows. */
  write(Kind, text) {
    if (this.#blank && this.#blank.Kind !== Kind) this.#dropBlank();
    const words = (this.#blank?.text ?? "") + text;
    this.#blank = null;
    if (this.#part instanceof Kind || words.trim()) this.part(Kind).add(words);
    else this.#blank = { Kind, text: words };
  }

  /** A call that is a block of code: its card shows it. It counts as text, which may turn out to be reasoning. */
  addBlock(text) {
    this.close();
    this.#texts.push(new StreamedText(text));
  }

  #dropBlank() {
    if (this.#blank?.Kind === Answer) this.#texts.push(new StreamedText(this.#blank.text));
    this.#blank = null;
  }

  /** The last `characters` of the text so far were reasoning, which follows: it takes the place of that text. */
  reclassify(characters) {
    this.close();
    const focused = this.body.contains(document.activeElement);
    let left = characters,
      place = null; // of the first answer that has lost text
    while (left > 0 && this.#texts.length) {
      const last = this.#texts.at(-1);
      left -= last.takeBack(left);
      if (last.element) place?.remove();
      place = last.element ?? place;
      if (last.text) break;
      this.#texts.pop();
    }
    if (!place) return;
    this.#part = new Reasoning(this, true);
    place.after(this.#part.element);
    if (this.#texts.at(-1)?.element !== place) place.remove();
    if (focused && !this.body.contains(document.activeElement)) this.#part.focus();
  }

  /** The open part of this kind: text continues there unless something else came between. */
  part(Kind) {
    if (!(this.#part instanceof Kind)) {
      this.close();
      this.#part = new Kind(this);
      if (Kind === Answer) this.#texts.push(this.#part);
      this.append(this.#part.element);
    }
    return this.#part;
  }

  changeFile(event) {
    this.#changesFiles = true;
    this.#ownerFiles.add(event);
    this.card(event.call).files.add(event);
  }

  /** Closes the part that receives text. */
  close() {
    this.#part?.close();
    this.#part = null;
    this.#dropBlank();
  }

  append(element) {
    if (this.#part && element !== this.#part.element) this.close();
    if (element !== this.#note?.element) this.#note = null;
    this.body.append(element);
  }

  /** Opens the dialog for a branch that begins at an event. */
  tryFrom = (from) => tryFrom(this, from);

  /** Resolves the approval on its card, and in the tray. */
  resolved(event) {
    this.approvalCard(event.call).resolve(event);
    if (!this.restoring) this.page.store.set({ resolved: { run: this.asked.run, ...event } });
  }

  /** The card of a call, created on first use. */
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

  /** The card of an approval: repeated requests have `~2` or `~3` after the call's id. */
  approvalCard(call, name) {
    return this.card(this.#cards.has(call) ? call : call.replace(/~[23]$/, ""), name);
  }

  /** The card of a call that has a result now. */
  finishedCard(call, name) {
    const card = this.card(call, name);
    this.#open.delete(call);
    return card;
  }

  /** The result of a call; after that of an accepted plan messages are carried out again. */
  finish(event) {
    this.finishedCard(event.call, event.name).finish(event);
    if (event.name === "submit_plan" && event.ok && !this.restoring) this.page.store.set({ planAccepted: event });
  }

  /** Repeated notices become one line. */
  note(notice) {
    const { code, attempts } = notice;
    if (SHOWN_ELSEWHERE.has(code)) return;
    this.isFork ||= code === FORK;
    if (this.#note?.code === code) this.#note.repeat(notice);
    else {
      const note = new Note(notice, code === PROJECT && !this.page.readOnly ? reviewButton(this.page) : null);
      this.append(note.element);
      this.#note = note;
    }
    if (attempts) this.#note.countDown(notice, (waits) => this.#waitForRetry(waits));
  }

  #waitForRetry(waits) {
    this.#retryWaits = waits;
    if (this.element.isConnected) this.#updateWorking();
  }

  labelled({ labels }) {
    this.note({ code: "labels", message: t("note.labels", { labels: labels.join(", ") }) });
    if (!this.restoring) this.page.sessions.refresh();
  }

  /** The steps of the plan, ticked off in place. */
  plan({ steps }) {
    if (!this.#plan) this.append((this.#plan = new Plan()).element);
    this.#steps = steps;
    this.#plan.show(steps, { quietly: this.restoring });
  }

  /** A picture that the model has returned. */
  showPicture(event) {
    this.append(h("div", { class: "card-pictures" }, fileElement(event, this.asked.session)));
  }

  documentBlock(event) {
    const opener = this.page.documents.block(event, this.restoring);
    if (opener) this.body.append(opener); // the text goes on above it
  }

  /** A document beside the chat: a button opens it. */
  document(event) {
    this.page.documents.add(event, this.restoring);
    if (event.title && event.type !== "document.started") this.append(this.page.documents.button(event));
  }

  /** A helper of a call: its state on the card, and its run to be opened there. */
  helper(event) {
    const card = this.card(event.call);
    card.helper ??= import("./helper_view.js").then(({ HelperView }) => new HelperView(card, this));
    card.helper.then((helper) => helper.add(event));
  }

  /** The context was reduced: `element` says how. Earlier runs may be drawn later. */
  contextReduced(event, element) {
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

  /** Shows a message to this run. Returns a function that removes it. */
  steer(text) {
    const words = h("p", { class: "note" }, t("run.steered"));
    const element = h("div", { class: "steer" }, userMessage({ text }, this.asked.session, { steered: true }), words);
    const steer = { text, element };
    this.#steers.push(steer);
    this.waiting.append(element);
    return () => {
      this.#steers = this.#steers.filter((one) => one !== steer);
      element.remove();
    };
  }

  /** The run has read a message: it moves from the waiting messages into the run. */
  addSteered(event) {
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
    this.asked = { ...this.asked, ended: this.asked.ended ?? Date.now() / 1000 };
    this.#cancelButton?.remove();
    const cards = [...this.#cards.values()];
    for (const card of cards) card.runEnded();
    foldSteps({ view: this, cards });
    if (!this.restoring) this.page.documents.endRun();
    const { composer, readOnly } = this.page;
    const offers = {
      again: () => composer.resend(this.asked),
      described: () => composer.resend(this.asked, { without_vision: "describe" }),
      goOn: () => composer.send(t("run.continue.message")),
    };
    const line = ending(event, readOnly ? {} : offers);
    if (line) this.append(line);
    for (const { element } of this.#steers) element.querySelector(".note").textContent = t("run.kept");
    const { run, session } = this.asked;
    const changes = this.#changesFiles && !readOnly && run && this.asked;
    const runsThere = readOnly ? null : this.#ownerFiles.element(run, session);
    if (runsThere) this.append(runsThere);
    const facts = this.started ? this.#facts(event) : null; // a shared conversation has none
    if (facts || !this.page.isPart) this.append(turnFoot(facts, changes, turnTools(this)));
    if (!this.restoring) announce(t(event.type === "run.failed" ? "run.announced.failed" : "run.announced.ended"));
  }

  /** Clocks differ: the duration comes from the server's times, from the browser's only if those are missing. */
  #facts({ usage }) {
    const { created, ended } = this.asked;
    const seconds = Math.max(0, ended - created);
    const total = this.usage && {
      prompt_tokens: this.usage.total_prompt_tokens,
      completion_tokens: this.usage.total_completion_tokens,
      measured: this.usage.measured,
      cost: this.usage.total_cost,
    };
    return { model: this.started.model, created, seconds, usage: { ...total, ...usage } };
  }

  /** Where the view stands, for `goTo`; null while a call is open or a note may repeat, or once the run has ended. */
  mark() {
    if (this.#open.size || this.#note || this.ended) return null;
    this.close();
    const { started, usage } = this;
    const lists = { parts: [...this.body.children], cards: [...this.#cards], texts: [...this.#texts] };
    return { ...lists, started, usage, plan: this.#plan, steps: this.#steps };
  }

  /** Shows what was there at a mark of this view, before or behind where it stands: nothing is drawn again. */
  goTo({ parts, cards, texts, started, usage, plan, steps }) {
    this.close();
    const kept = new Map(cards);
    for (const [call, card] of this.#cards) if (kept.get(call) !== card) card.leave();
    this.#cards = kept;
    this.#open.clear();
    this.#texts = [...texts];
    const { children } = this.body;
    const same = parts.findIndex((part, at) => children[at] !== part);
    const from = same < 0 ? parts.length : same;
    while (children.length > from) this.body.lastElementChild.remove();
    this.body.append(...parts.slice(from));
    this.#plan = plan;
    if (plan) this.plan({ steps });
    Object.assign(this, { started, usage });
    this.#note = null;
  }

  /** The conversation was switched: stops all timers. */
  leave() {
    this.close();
    for (const card of this.#cards.values()) card.leave();
    this.#working.hide();
  }

  /** Shows the progress line while the run has no visible activity. */
  #updateWorking() {
    const waits = this.started ? null : WAITING_TEXTS[this.asked.state];
    this.element.classList.toggle("waiting", Boolean(waits));
    if (this.ended || this.#retryWaits || (!waits && (this.#part || this.#open.size))) return this.#working.hide();
    this.#working.show(waits ?? t("run.thinking"), { ticks: !this.page.isPast });
  }
}
