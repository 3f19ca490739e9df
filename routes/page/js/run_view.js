/** One run: the words it was asked for with, and what its events make of it. A handler for each type of event. */

import { fill, h, say } from "./dom.js";
import { Answer, Thought, userMessage } from "./message.js";
import { ToolCard } from "./tool_card.js";

const HANDLERS = {
  "run.started": (view, event) => (view.started = event),
  "round.started": (view) => view.close(),
  "text.delta": (view, { text }) => view.part(Answer).add(text),
  "reasoning.delta": (view, { text }) => view.part(Thought).add(text),
  "message.added": (view, event) => view.append(userMessage(event, view.asked.session, { steered: true })),
  "tool.delta": (view, event) => view.card(event.call, event.name).write(event),
  "tool.started": (view, event) => view.card(event.call, event.name).start(event),
  "tool.progress": (view, event) => view.card(event.call).progress(event),
  "tool.finished": (view, event) => view.card(event.call, event.name).finish(event),
  "tool.rejected": (view, event) => view.card(event.call ?? `rejected-${event.seq}`, event.name).reject(event),
  "approval.required": (view, event) => view.card(event.call, event.name).ask(event),
  "approval.resolved": (view, event) => view.card(event.call).resolve(event),
  "context.trimmed": (view, event) => view.note("trimmed", trimmed(event)),
  "context.summarised": (view, event) => view.note("summarised", summarised(event)),
  "notice": (view, event) => view.note(event.code, event.message),
  "document.updated": () => undefined, // the same text is in text.delta
  "usage": (view, event) => view.used(event),
  "run.finished": (view, event) => view.end(event),
  "run.failed": (view, event) => view.end(event),
};

export class RunView {
  seq = 0;
  restoring = false; // its events come from the log: nothing of them is news
  started = null;
  ended = null; // its terminal event
  usage = null; // its last `usage`
  #part = null;
  #cards = new Map();

  /** `asked`: what `run.asked` says. */
  constructor(asked, page) {
    this.asked = asked;
    this.page = page;
    this.body = h("div", { class: "run-body" });
    this.element = h("article", { class: "run", dataset: { run: asked.run }, "aria-label": "Turn" });
    if (asked.message) this.element.append(userMessage(asked.message, asked.session));
    this.element.append(this.body);
  }

  add(event) {
    this.seq = event.seq;
    HANDLERS[event.type]?.(this, event);
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
  }

  append(element) {
    if (this.#part && element !== this.#part.element) this.close();
    this.body.append(element);
  }

  /** The card of a call, made when it is first heard of. */
  card(call, name) {
    let card = this.#cards.get(call);
    if (!card) {
      card = new ToolCard(call, name ?? "tool", this);
      this.#cards.set(call, card);
      this.append(card.element);
    }
    return card;
  }

  note(code, words) {
    this.append(h("p", { class: "note", dataset: { code } }, words));
  }

  used(event) {
    this.usage = event;
    const { run, created } = this.asked;
    const from = { run, created, model: this.started?.model, restored: this.restoring };
    this.page.store.set({ usage: { ...event, ...from } });
  }

  end(event) {
    this.close();
    this.ended = event;
    for (const card of this.#cards.values()) card.runEnded();
    if (event.type === "run.failed") {
      this.append(h("p", { class: "problem" }, event.message));
    } else if (event.reason !== "answered") {
      this.note("ended", ENDS[event.reason] ?? event.reason);
    }
    if (!this.restoring) say(event.type === "run.failed" ? "The run failed." : "The answer is complete.");
  }
}

const ENDS = {
  cancelled: "Stopped.",
  round_limit: "It stopped at its limit of rounds. Write “go on” to let it continue.",
  call_limit: "It stopped at its limit of tool calls.",
  token_limit: "It stopped at its limit of tokens.",
  deadline: "It ran out of time.",
  loop_broken: "It went round in circles and was stopped.",
  budget: "The budget is used up.",
  paused: "An admin has paused the server.",
  server_stopped: "The server was stopped.",
  revoked: "The token was revoked.",
};

const trimmed = ({ dropped, shortened, before, after }) =>
  `The model reads less of this conversation from here on: ${dropped} messages left out, ${shortened} shortened (${before.toLocaleString()} to ${after.toLocaleString()} tokens).`;
const summarised = ({ messages, before, after }) =>
  `The first ${messages} messages are read as a summary from here on (${before.toLocaleString()} to ${after.toLocaleString()} tokens).`;
