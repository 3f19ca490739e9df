/** The card of a tool call, from its first streamed argument to its result. */

import { post } from "../feed/api.js";
import { CardArguments } from "./card_arguments.js";
import { CardHead, STATES } from "./card_head.js";
import { ChangedFiles } from "./changed_files.js";
import { fileElement } from "./message_files.js";
import { forPeople, resultOf } from "./card_result.js";
import { startTicking } from "../dom/clock.js";
import { announce, fill, h, hasSelection, onNextFrame } from "../dom/elements.js";
import { Problem } from "../dom/forms.js";
import { t } from "../dom/texts.js";
import { escapeText } from "../text/exact_text.js";
import { Tail } from "../terminal/output_tail.js";
import { deciderOf, nameOf, personOf, titleOf } from "./call_title.js";
import { callOutput } from "../feed/output.js";

const PROCESSES = new Set(["bash", "python"]);
const REASON = 4_000; // characters of a rejection
const STOPPED = /^This call was stopped before|\n\[stopped by the person after [^\n]*\]$/;
const INTERRUPTED = /^The server stopped while this call ran;/;
const STARTED_JOB = /^Started (job_\w+) in the background\./;
const SILENT_S = 3; // after which input is offered to a command that has printed nothing
const LONG_S = 5; // the end of longer calls is announced to screen readers
const FOLDED_STATES = new Set(["waiting", "done", "handed", "refused", "unrun"]); // the tray has what waits
const TERMINAL_STATES = new Set(["done", "failed", "handed", "refused", "stopped", "unknown", "unrun"]);
const DECISIONS = {
  approved: (by) => ["next", t("card.decision.approved", { by })],
  denied: (by) => ["refused", t("card.decision.denied", { by })],
  expired: () => ["refused", t("card.decision.expired")],
  withdrawn: () => ["refused", t("card.decision.withdrawn")],
};

// the same for a question, which runs nothing
const ANSWERS = {
  ...DECISIONS,
  approved: (by) => ["done", t("card.decision.answered", { by })],
  denied: (by) => ["refused", t("card.decision.declined", { by })],
};
const QUESTION = /^(mcp__.+__elicitation|ask_user__question)$/s;

const writing = new WeakMap(); // by run: the cards whose call has not started

export class ToolCard {
  #state = null;
  #stateText = null; // overrides the label of the state
  #chosen = null; // whether the reader has expanded or collapsed it
  #began = 0; // of performance.now()
  #seconds = null;
  #untick = null;
  #atLeast = false; // the duration is only a lower bound
  #result = null;
  #changedBy = null;
  #question = null; // the id of the latest approval request
  #drawnResult = false;
  #input = null; // the making of a line for what the command reads, once it is known to read
  #reading = null; // the last progress, which says if it reads now
  #triable = false;
  #watched = false; // its output was shown while it ran: the card stays as it is when the command ends

  constructor(call, name, view) {
    Object.assign(this, { call, name, view });
    this.given = new CardArguments(name);
    this.result = h("div", { class: "card-result" });
    this.problem = new Problem();
    this.whole = view.page.readOnly ? null : callOutput(view.asked.run, call);
    this.tail = new Tail({
      label: t("card.output", { name: nameOf(name) }),
      whole: this.whole,
      name: `${name}-${call}`,
      size: () => sizeOf(view.started?.limits?.terminal),
    });
    this.body = h("div", { class: "card-body" }, this.given.element, this.tail.element, this.result);
    this.brief = h("div", { class: "card-brief", hidden: true });
    this.pictures = h("div", { class: "card-pictures", hidden: true });
    this.files = new ChangedFiles(() => this.view.asked.session);
    const onStop = view.page.readOnly ? null : () => this.#stop();
    this.head = new CardHead({ body: this.body, onFold: (open) => this.#fold(open), onStop });
    this.element = h("section", { class: view.restoring ? "card" : "card new", role: "group", dataset: { call } });
    const { problem, brief, body, pictures, files } = this;
    this.element.append(this.head.element, problem.element, brief, body, pictures, files.element);
    if (!writing.has(view)) writing.set(view, new Set());
    writing.get(view).add(this);
    this.#setState("writing");
  }

  /** A streamed piece of the arguments. */
  write({ text }) {
    if (this.#state === "next") this.#setState("writing");
    this.given.write(text);
    onNextFrame(this.#title);
  }

  start({ seq, name, arguments: given, elapsed_s = 0 }) {
    this.#setCall(name, given);
    this.#offerTry(seq);
    this.#setElapsed(elapsed_s);
    this.#setState("running");
  }

  progress(event) {
    this.#setElapsed(event.elapsed_s);
    this.tail.show(event, { live: !this.view.restoring });
    this.#reading = event;
    if (event.input && !this.view.page.readOnly) this.#input ??= this.#makeInput();
    this.#showInput();
  }

  /** A line for what the command reads, and keys for its screen. */
  async #makeInput() {
    const [{ CallInput }, { CallTerminal }] = await Promise.all([
      import("./call_input.js"),
      import("../feed/call_terminal.js"),
    ]);
    this.link = new CallTerminal(this.view.asked.run, this.call);
    this.input = new CallInput(this.link);
    this.tail.element.after(this.input.element);
    this.tail.count.after(this.input.button);
    this.#showInput();
  }

  #showInput() {
    const reads = Boolean(this.#reading?.input);
    const hides = Boolean(this.#reading?.hidden);
    const focused = this.input?.holdsFocus;
    this.input?.show(reads, hides);
    this.tail?.connect(reads ? (this.link ?? null) : null, hides || this.#seconds > SILENT_S);
    if (focused && !reads) this.tail.box.focus({ preventScroll: true }); // hiding must not lose the focus
  }

  finish({ ok, text: written, duration_s, exit_code, lines, advice }) {
    const text = forPeople(written, advice);
    const lost = !ok && INTERRUPTED.test(written);
    this.#seconds = lost ? null : duration_s; // no server was there for its end
    const { name, call, tail, whole } = this;
    const isProcess = exit_code !== undefined || PROCESSES.has(name);
    if (!isProcess) tail.element.remove(); // it shows progress, not the result
    const names = {
      label: t("card.result", { name: nameOf(name) }),
      fileName: `${name}-${call}`,
      fields: this.given.fields,
    };
    this.#result = resultOf({ name, ok, text, tail, whole, isProcess, exitCode: exit_code, lines, ...names });
    this.head.extra.textContent = this.#result.extra ?? "";
    const job = ok && name === "bash" && STARTED_JOB.exec(text)?.[1];
    this.#watched = isProcess && !job && !this.view.restoring;
    if (job && !this.view.page.readOnly) this.job = this.#followJob(job);
    this.#setState(ok ? "done" : lost ? "unknown" : STOPPED.test(written) ? "stopped" : "failed");
    if (!this.view.restoring && (!ok || duration_s > LONG_S)) announce(this.#label);
  }

  /** The output of the background job that the call has started. */
  async #followJob(job) {
    const { JobTail } = await import("./job_tail.js");
    const tail = new JobTail(job, this.view.page.store);
    this.brief.after(tail.element);
    return tail;
  }

  /** The app of the call's tool, below the head: it stays when the card is folded. */
  async showApp(event) {
    this.hasApp = true;
    const { AppCard } = await import("../apps/app_card.js");
    this.app ??= new AppCard(event, this.given.fields, this.view);
    this.head.element.after(this.app.element);
  }

  /** A picture that the call has returned. */
  showPicture(event) {
    this.pictures.append(fileElement(event, this.view.asked.session));
    this.pictures.hidden = false;
  }

  /** A call of the client's own tool: its result comes with the next turn, if at all. */
  hand({ name, arguments: given }) {
    this.#setCall(name, given);
    this.#setState("handed");
  }

  reject({ reason: written, name, advice }) {
    const reason = forPeople(written, advice); // empty where the person's own decision says it
    if (name && name !== this.name) this.#setCall(name, this.given.fields);
    if (this.#state !== "refused") this.#stateText = null;
    this.#result = {
      element: () => null,
      brief: () => reason && h("p", { class: "card-reason", dir: "auto" }, escapeText(reason.slice(0, REASON))),
      stays: true,
    };
    this.#setState("refused", this.#stateText);
  }

  /** Waiting for approval: the tray above the composer has the buttons. */
  ask({ seq, call, name, arguments: given }) {
    this.#question = call;
    this.#setCall(name, given);
    this.#offerTry(seq);
    if (!this.view.page.readOnly) this.head.offerAnswer(() => this.#toTray());
    this.#setState("waiting");
  }

  resolve({ decision, by, door, arguments: given, note }) {
    const decisions = QUESTION.test(this.name) ? ANSWERS : DECISIONS;
    const [state, words] = decisions[decision]?.(deciderOf(by, door)) ?? ["next", decision];
    if (given) this.#changedBy = personOf(by);
    if (given) this.given.settle(given, { by: this.#changedBy });
    this.#setState(state, note ? `${words}: “${escapeText(note)}”` : words);
  }

  /** The run has ended: closes a state that was still active. */
  runEnded() {
    if (TERMINAL_STATES.has(this.#state)) return;
    const failed = this.view.ended?.type === "run.failed";
    const state = this.#state === "running" ? (failed ? "unknown" : "stopped") : "unrun";
    this.#atLeast = this.#state === "running" && !this.#untick; // the log does not have the time of its end
    if (this.#untick) this.#tick();
    this.#setState(state);
  }

  /** Of a run that has ended: `folds` if it shows no failure, picture or running job, `isRead` if the reader has opened it. */
  get step() {
    const state = this.#state;
    return {
      isRead: this.#chosen || this.tail.opened,
      folds: state === "done" && this.pictures.hidden && !this.job && !this.hasApp,
      failed: state === "failed" || state === "unknown",
      seconds: this.#seconds ?? 0,
      key: this.given.fields.path ?? this.call,
    };
  }

  /** The conversation was switched. */
  leave() {
    writing.get(this.view).delete(this);
    this.#untick?.();
    this.#untick = null;
    this.job?.then((tail) => tail.leave());
    this.app?.leave();
  }

  /** A button for a branch that begins before this call, at the first event of it. */
  #offerTry(seq) {
    const { page, tryFrom } = this.view;
    if (this.#triable || page.readOnly || page.isPart || QUESTION.test(this.name)) return;
    this.#triable = true;
    const { call } = this.element.dataset;
    const open = () => tryFrom({ at: seq, call, edit: { arguments: this.given.fields } });
    this.head.offerTry(open);
  }

  #setCall(name, given) {
    if (name && name !== this.name) {
      this.name = name;
      const arguments_ = new CardArguments(name);
      this.given.element.replaceWith(arguments_.element);
      this.given = arguments_;
    }
    this.head.isCommand(PROCESSES.has(this.name));
    this.given.settle(given, { by: this.#changedBy });
    this.#title();
  }

  #title = () => {
    this.head.name(this.name, titleOf(this.name, this.given.fields));
    this.element.setAttribute("aria-label", this.#label);
  };

  get #label() {
    const title = titleOf(this.name, this.given.fields);
    const state = this.#stateText ?? STATES[this.#state][0];
    return `${nameOf(this.name)}${title ? `: ${title}` : ""}, ${state}`;
  }

  #setState(state, words = null) {
    this.#state = state;
    this.#stateText = words;
    this.element.dataset.state = state;
    if (state !== "running") {
      this.#reading = null;
      this.#showInput();
    }
    this.head.show(state, words);
    this.#title();
    this.#updateSiblings();
    this.#updateClock();
    this.#updateLayout();
  }

  /** The calls of a round that have not started wait for the active one. */
  #updateSiblings() {
    const cards = writing.get(this.view);
    if (this.#state === "writing") return;
    cards.delete(this);
    if (this.#state !== "running" && this.#state !== "waiting") return;
    for (const other of cards) if (other.#state === "writing") other.#setState("next");
    for (const other of cards) cards.add(other);
  }

  #setElapsed(elapsed_s) {
    this.#seconds = elapsed_s;
    this.#began = performance.now() - elapsed_s * 1_000;
  }

  /** Ticks while running; for a restored run only once it is clear that it still runs. */
  #updateClock() {
    const runs = this.#state === "running";
    if (runs) onNextFrame(this.#beginTicking);
    this.head.showTime(this.#seconds, { over: TERMINAL_STATES.has(this.#state), atLeast: this.#atLeast });
    if (runs || !this.#untick) return;
    this.#untick();
    this.#untick = null;
  }

  #beginTicking = () => {
    const goesOn = this.#state === "running" && this.element.isConnected && !this.view.page.isPast;
    if (goesOn) this.#untick ??= startTicking(() => this.#tick());
  };

  #tick() {
    this.#seconds = (performance.now() - this.#began) / 1_000;
    this.head.showTime(this.#seconds);
  }

  #fold(open) {
    this.#chosen = open;
    if (open) this.tail.recall();
    this.#updateLayout();
  }

  /**
   * Expanded while active, on failure, and where its output was watched: what is read must not fold away. Others are
   * collapsed to a preview, and so are all when the conversation is opened again, unless the reader has chosen.
   */
  #updateLayout() {
    const over = TERMINAL_STATES.has(this.#state);
    const read = this.tail.opened || this.#watched || hasSelection(this.body);
    const open = this.#chosen ?? (!FOLDED_STATES.has(this.#state) || read);
    this.head.expand(open);
    this.body.hidden = !open;
    if (open) this.#drawResult();
    this.head.hideTitle(open && PROCESSES.has(this.name) && !this.given.element.hidden); // the body has the command
    const brief = over && (!open || this.#result?.stays) && this.#result?.brief?.();
    fill(this.brief, brief);
    this.brief.hidden = !brief;
  }

  #drawResult() {
    if (!this.#result || this.#drawnResult === this.#result) return;
    this.#drawnResult = this.#result;
    this.given.element.hidden ||= Boolean(this.#result.replacesArguments);
    fill(this.result, this.#result.element());
  }

  #toTray() {
    const tray = this.view.page.at("approvals");
    const { run } = this.view.asked;
    tray.dispatchEvent(new CustomEvent("show", { detail: { run, call: this.#question } }));
    if (!tray.contains(document.activeElement)) tray.querySelector("button, textarea, input")?.focus();
  }

  async #stop() {
    const { stop } = this.head;
    if (stop.ariaDisabled) return;
    stop.ariaDisabled = "true"; // a disabled button would lose the focus
    this.problem.show("");
    try {
      await post(`/runs/${encodeURIComponent(this.view.asked.run)}/calls/${encodeURIComponent(this.call)}/cancel`);
    } catch (error) {
      stop.ariaDisabled = null;
      this.problem.show(error.message);
    }
  }
}

/** `120x40` as `{columns, rows}`; null for a run without terminals. */
function sizeOf(text) {
  const [columns, rows] = (text ?? "").split("x").map(Number);
  return columns && rows ? { columns, rows } : null;
}
