/** Short lines in a run: notices, reductions of the context, progress, how it ended, and the facts below it. */

import { formatDuration, startTicking, formatTime } from "../dom/clock.js";
import { get } from "../feed/api.js";
import { button, fill, h } from "../dom/elements.js";
import { loadOnce } from "../dom/forms.js";
import { language, locale, t } from "../dom/texts.js";

/** A notice of the run. `repeat` counts repetitions, unless the notice itself says which attempt it is. */
export class Note {
  #times = 1;
  #stop = null; // of a countdown

  constructor({ code, message }, action = null) {
    this.code = code;
    this.words = h("span", { dir: "auto" }, message);
    this.times = h("span", { class: "note-times" });
    this.element = h("p", { class: "note", dataset: { code } }, this.words, this.times, action && " ", action);
  }

  repeat({ message, attempt }) {
    this.#times++;
    this.words.textContent = message;
    if (!attempt) this.times.textContent = ` ${t("note.times", { count: this.#times })}`;
  }

  /**
   * Says why the model is asked again, and counts the seconds down until then, or until something else follows the
   * note. `waits(true)` is called meanwhile: there is no other clock.
   */
  countDown({ retry_at, wanted, reason, attempt, attempts }, waits) {
    this.#stop?.();
    const failed = reason ? "note.failed" : "note.limited";
    const facts = { model: wanted, reason, attempt, attempts };
    const tick = () => {
      const seconds = Math.ceil(retry_at - Date.now() / 1000);
      const over = seconds <= 0 || this.element.nextElementSibling;
      const then = t(over ? "note.retried" : "note.retry_in", { ...facts, seconds });
      this.words.textContent = `${t(failed, facts)} ${then}`;
      if (over) this.#stop?.();
      waits(!over);
    };
    this.#stop = startTicking(tick);
    tick();
  }
}

/** A button that opens the panel of the project's instructions. */
export function reviewButton(page) {
  const load = () => import("../panels/project_panel.js");
  const toggle = loadOnce(load, (panel) => panel.toggle(page, review));
  const review = button(t("note.review"), toggle, { "aria-expanded": "false" });
  return review;
}

/** The note that messages were omitted or shortened for the model. */
export function trimmed({ dropped, shortened, before, after }) {
  const numbers = [
    dropped && t("note.dropped", { count: dropped }),
    shortened && t("note.shortened", { count: shortened }),
    t("note.tokens", { before, after }),
  ];
  const words = numbers.filter(Boolean).join(" ");
  return details("trimmed", t("note.trimmed"), h("p", {}, words), h("p", {}, t("note.trimmed.why")));
}

/** The note that the first messages were summarised; expanded, it shows the summary. */
export function summarised({ messages, before, after }, session) {
  const numbers = h("p", {}, t("note.tokens", { before, after }));
  const text = h("p", { class: "summary-text", dir: "auto" }, t("note.summary.loading"));
  const element = details("summarised", t("note.summarised", { count: messages }), numbers, text);
  element.addEventListener("toggle", () => show(text, session, messages), { once: true });
  return element;
}

async function show(text, session, messages) {
  try {
    const { summaries } = await get(`/sessions/${encodeURIComponent(session)}`);
    const found = summaries.find(({ upto }) => upto === messages) ?? summaries.at(-1);
    fill(text, found?.text ?? t("note.summary.gone"));
  } catch (error) {
    fill(text, error.message);
  }
}

function details(code, words, ...inside) {
  return h("details", { class: "note", dataset: { code } }, h("summary", {}, words), ...inside);
}

/** The reasons of `run.finished` after which the run can be continued; the others only end it. */
const CAN_CONTINUE = ["no_answer", "round_limit", "call_limit", "token_limit", "deadline", "server_stopped"];
const ENDS = [
  ...["cancelled", "client_tools", "taken_back", "loop_broken", "budget", "paused", "revoked"],
  ...CAN_CONTINUE,
];

/**
 * How a run ended, unless with an answer: with a button where something can be done. It calls one of `again`,
 * `described` (again, with descriptions instead of pictures) and `goOn`.
 */
export function ending({ type, reason, code, message }, { again, described, goOn }) {
  // Also after an error that needs a change first, such as another key: it may have been made.
  const offer = code === "no_vision" ? [t("run.describe"), described] : [t("run.again"), again];
  if (type === "run.failed") return line("problem", message, offer);
  if (reason === "answered") return null;
  const words = ENDS.includes(reason) ? t(`run.ended.${reason}`) : t("run.ended", { reason });
  return line("note ended", words, CAN_CONTINUE.includes(reason) && [t("run.continue"), goOn]);
}

function line(kind, words, offer) {
  const again = offer?.[1] && button(offer[0], offer[1], { class: "again" });
  return h("div", { class: `${kind} end-line` }, h("p", { dir: "auto" }, words), again);
}

/**
 * The line below a turn. `usage` of `run.finished`, or the last known one of a failed run.
 * `changes`: `{run, session}` of the run, if it has changed files.
 */
export function turnFoot(known, changes, tools) {
  return h("footer", { class: "turn-foot faint", tabindex: -1 }, tools, known && shownFacts(known, changes));
}

function shownFacts({ model, created, seconds, usage }, changes) {
  const date = new Date(created * 1000);
  const time = h("time", { datetime: date.toISOString(), title: date.toLocaleString(locale) }, formatTime(created));
  const more = [
    h("bdi", {}, model),
    seconds === null ? null : formatDuration(seconds),
    tokens(usage),
    ...speed(usage?.timing),
    usage?.cost ? h("span", { title: t("run.cost.title") }, costWords(usage.cost)) : null,
  ];
  return [
    changes ? h("span", {}, changesButton(changes)) : null,
    h("span", {}, time),
    more.filter(Boolean).map((fact) => h("span", { class: "foot-more" }, fact)),
  ];
}

/** A button that shows what the run has changed in the workspace. */
function changesButton(asked) {
  const load = () => import("./run_changes.js");
  const open = loadOnce(load, ({ openChanges }) => openChanges(asked));
  return button(t("run.changes"), open, { class: "foot-button" });
}

function tokens(usage) {
  if (usage?.prompt_tokens === undefined) return null;
  const numbers = { input: usage.prompt_tokens, output: usage.completion_tokens };
  return t(usage.measured ? "run.tokens" : "run.tokens.about", numbers);
}

/** How soon a run answered, and how fast. */
function speed(timing) {
  const { first_token_s: first, tokens_per_s: rate } = timing ?? {};
  const soon = () => t("run.first_token", { time: formatDuration(first) });
  return [
    first === undefined ? null : h("span", { title: t("run.first_token.title") }, soon()),
    rate === undefined ? null : t("run.rate", { rate }),
  ];
}

/** Prices have no currency. */
export function costWords(amount) {
  return t("run.cost", { amount: amount.toLocaleString(language, { maximumSignificantDigits: 2 }) });
}

/** Shown while a run has no visible output, with the elapsed time. */
export class Working {
  #since = null;
  #stop = null;
  #time = h("span", { class: "working-time" });
  #words = h("span", {}, t("run.thinking"));

  constructor() {
    const pulse = h("span", { class: "pulse" });
    this.element = h("p", { class: "working faint", hidden: true }, pulse, this.#words, " ", this.#time);
  }

  /** `ticks`: with the time that it takes. */
  show(words = t("run.thinking"), { ticks = true } = {}) {
    this.#words.textContent = words;
    this.element.hidden = false;
    if (this.#stop || !ticks) return;
    this.#since = performance.now();
    this.#time.textContent = "";
    this.#stop = startTicking(() => this.#tick());
  }

  hide() {
    this.#stop?.();
    this.#stop = null;
    this.element.hidden = true;
  }

  #tick() {
    const seconds = (performance.now() - this.#since) / 1000;
    if (seconds >= 1) this.#time.textContent = formatDuration(Math.floor(seconds)).replace(/[.,]0/, "");
  }
}
