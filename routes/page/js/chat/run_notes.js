/** Short lines in a run: notices, reductions of the context, progress, how it ended, and the facts below it. */

import { formatDuration, startTicking, formatTime } from "../dom/clock.js";
import { get } from "../feed/api.js";
import { fill, h } from "../dom/elements.js";
import { loadOnce } from "../dom/forms.js";

const count = (number) => number.toLocaleString();

/** A notice of the run. `repeat` counts repetitions. */
export class Note {
  #times = 1;

  constructor(code, words, action = null) {
    this.code = code;
    this.words = h("span", { dir: "auto" }, words);
    this.times = h("span", { class: "note-times" });
    this.element = h("p", { class: "note", dataset: { code } }, this.words, this.times, action && " ", action);
  }

  repeat(words) {
    this.#times++;
    this.words.textContent = words;
    this.times.textContent = ` (${this.#times} times)`;
  }
}

/** A button that opens the panel of the project's instructions. */
export function reviewButton(page) {
  const onclick = loadOnce(
    () => import("../panels/project_panel.js"),
    (panel) => panel.toggle(page, button),
  );
  const button = h("button", { type: "button", "aria-expanded": "false", onclick }, "Review");
  return button;
}

/** The note that messages were omitted or shortened for the model. */
export function trimmed({ dropped, shortened, before, after }) {
  const parts = [dropped && `${count(dropped)} omitted`, shortened && `${count(shortened)} shortened`].filter(Boolean);
  const numbers = `Messages: ${parts.join(", ") || "none omitted"}. ${count(before)} tokens before, ${count(after)} now.`;
  const why = "The conversation no longer fits into the model's context window. The page still has all of it.";
  return details(
    "trimmed",
    "From here on the model receives a shortened conversation",
    h("p", {}, numbers),
    h("p", {}, why),
  );
}

/** The note that the first messages were summarised; expanded, it shows the summary. */
export function summarised({ messages, before, after }, session) {
  const numbers = h("p", {}, `${count(before)} tokens before, ${count(after)} now.`);
  const text = h("p", { class: "summary-text", dir: "auto" }, "Loading the summary …");
  const element = details(
    "summarised",
    `The model receives a summary of the first ${count(messages)} messages`,
    numbers,
    text,
  );
  element.addEventListener("toggle", () => show(text, session, messages), { once: true });
  return element;
}

async function show(text, session, messages) {
  try {
    const { summaries } = await get(`/sessions/${encodeURIComponent(session)}`);
    const found = summaries.find(({ upto }) => upto === messages) ?? summaries.at(-1);
    fill(text, found?.text ?? "It is no longer stored.");
  } catch (error) {
    fill(text, error.message);
  }
}

function details(code, words, ...inside) {
  return h("details", { class: "note", dataset: { code } }, h("summary", {}, words), ...inside);
}

const GO_ON = "Continue";
/** By the reason of `run.finished`: a sentence, and the label of a button to continue. */
const ENDS = {
  no_answer: ["The model gave no answer.", GO_ON],
  cancelled: ["Stopped."],
  client_tools: ["The client has calls to run, and sends their results with its next message."],
  taken_back: ["Cancelled before it started."],
  round_limit: ["The run reached its limit of rounds.", GO_ON],
  call_limit: ["The run reached its limit of tool calls.", GO_ON],
  token_limit: ["The run reached its limit of tokens.", GO_ON],
  deadline: ["The run reached its time limit.", GO_ON],
  loop_broken: ["The run was stopped because it kept repeating itself."],
  budget: ["The budget is exhausted."],
  paused: ["An admin has paused the server."],
  server_stopped: ["The server was stopped.", GO_ON],
  revoked: ["The token was revoked."],
};

/**
 * How a run ended, unless with an answer: with a button where something can be done. It calls one of `again`,
 * `described` (again, with descriptions instead of pictures) and `goOn`.
 */
export function ending({ type, reason, code, message, retryable }, { again, described, goOn }) {
  const offer = code === "no_vision" ? ["Send descriptions instead", described] : retryable && ["Try again", again];
  if (type === "run.failed") return line("problem", message, offer);
  if (reason === "answered") return null;
  const [words, next] = ENDS[reason] ?? [`The run ended: ${reason}.`];
  return line("note ended", words, next && [next, goOn]);
}

function line(kind, words, offer) {
  const button = offer && h("button", { type: "button", class: "again", onclick: offer[1] }, offer[0]);
  return h("div", { class: `${kind} end-line` }, h("p", { dir: "auto" }, words), button);
}

/**
 * The line below a turn. `usage` of `run.finished`, or the last known one of a failed run.
 * `changes`: the run, if it has changed files.
 */
export function turnFoot({ model, created, seconds, usage }, changes) {
  const date = new Date(created * 1000);
  const facts = [
    h("bdi", {}, model),
    h("time", { datetime: date.toISOString(), title: date.toLocaleString() }, formatTime(created)),
    seconds === null ? null : formatDuration(seconds),
    tokens(usage),
    ...speed(usage?.timing),
    usage?.cost ? h("span", { title: "cost" }, cost(usage.cost)) : null,
    changes ? changesButton(changes) : null,
  ];
  return h(
    "footer",
    { class: "turn-foot faint" },
    facts.filter(Boolean).map((fact) => h("span", {}, fact)),
  );
}

/** A button that shows what the run has changed in the workspace. */
function changesButton(run) {
  const onclick = loadOnce(
    () => import("./run_changes.js"),
    ({ openChanges }) => openChanges(run),
  );
  return h("button", { type: "button", class: "foot-button", onclick }, "Changes");
}

function tokens(usage) {
  if (usage?.prompt_tokens === undefined) return null;
  const about = usage.measured ? "" : "about ";
  const [read, written] = [usage.prompt_tokens, usage.completion_tokens].map((number) => number.toLocaleString());
  return `${about}${read} input tokens, ${written} output tokens`;
}

/** How soon a run answered, and how fast. */
function speed(timing) {
  const { first_token_s: first, tokens_per_s: rate } = timing ?? {};
  return [
    first === undefined ? null : h("span", { title: "first token of the run" }, `first token ${formatDuration(first)}`),
    rate === undefined ? null : `${count(rate)} tokens/s`,
  ];
}

/** Prices have no currency. */
function cost(amount) {
  return `cost ${amount.toLocaleString(undefined, { maximumSignificantDigits: 2 })}`;
}

/** Shown while a run has no visible output, with the elapsed time. */
export class Working {
  #since = null;
  #stop = null;
  #time = h("span", { class: "working-time" });
  #words = h("span", {}, "Thinking");

  constructor() {
    this.element = h(
      "p",
      { class: "working faint", hidden: true },
      h("span", { class: "pulse" }),
      this.#words,
      " ",
      this.#time,
    );
  }

  show(words = "Thinking") {
    this.#words.textContent = words;
    if (this.#stop) return;
    this.#since = performance.now();
    this.#time.textContent = "";
    this.element.hidden = false;
    this.#stop = startTicking(() => this.#tick());
  }

  hide() {
    this.#stop?.();
    this.#stop = null;
    this.element.hidden = true;
  }

  #tick() {
    const seconds = (performance.now() - this.#since) / 1000;
    if (seconds >= 1) this.#time.textContent = formatDuration(Math.floor(seconds)).replace(".0", "");
  }
}
