/** A helper on the card of its call: its state in a line, and its own run, which is drawn live once it is opened. */

import { get, request } from "../feed/api.js";
import { readEvents } from "../feed/sse.js";
import { button, fill, h } from "../dom/elements.js";
import { escapeText } from "../text/exact_text.js";
import { t } from "../dom/more_texts.js";

const PENDING = "pending";

export class HelperView {
  #card;
  #view;
  #started = null;
  #waiting = new Set(); // approvals below it
  #abort = null;

  /** `view`: the run whose card this is. */
  constructor(card, view) {
    this.#card = card;
    this.#view = view;
    this.state = h("span", { dir: "auto" });
    this.button = button(t("helper.open"), () => this.#toggle(), { "aria-expanded": "false" });
    this.run = h("div", { class: "helper-run", hidden: true });
    this.element = h("div", { class: "helper" }, h("p", { class: "note" }, this.state, " ", this.button), this.run);
    card.element.append(this.element);
  }

  add(event) {
    if (event.type === "helper.started") this.#started = event;
    if (event.type === "helper.approval") {
      if (event.state === PENDING) this.#waiting.add(event.approval);
      else this.#waiting.delete(event.approval);
    }
    if (event.type === "helper.finished") this.#waiting.clear();
    this.#show(event);
  }

  #show(event) {
    const { model = "" } = this.#started ?? {};
    const { type, reason, rounds } = event;
    const working = t(this.#waiting.size ? "helper.waiting" : "helper.working");
    const words = type === "helper.finished" ? t("helper.ended", { reason, rounds }) : working;
    fill(this.state, escapeText(t("helper.state", { model, state: words })));
  }

  #toggle() {
    const opens = this.run.hidden;
    this.run.hidden = !opens;
    this.button.setAttribute("aria-expanded", String(opens));
    this.button.textContent = t(opens ? "helper.close" : "helper.open");
    if (opens) this.#read();
    else this.#abort?.abort();
  }

  /** Draws the helper's run from its beginning, and goes on until it ends or is closed. */
  async #read() {
    const { helper, helper_session: session } = this.#started;
    const abort = (this.#abort = new AbortController());
    const asked = { run: helper, session, message: null, state: "running", created: Date.now() / 1000 };
    const drawn = new this.#view.constructor(asked, quiet(this.#view.page));
    drawn.restoring = true; // what the helper does is not announced
    fill(this.run, drawn.element);
    await drawRun(helper, asked, drawn, abort, () => this.#card.element.isConnected);
  }
}

/** Draws a run from its beginning, and goes on until it ends, is left by `abort`, or is not `wanted()`. */
export async function drawRun(run, asked, drawn, abort, wanted) {
  const path = `/runs/${encodeURIComponent(run)}`;
  try {
    const { created, ended } = await get(path, { signal: abort.signal });
    drawn.begin({ ...asked, created, ended });
    for await (const event of eventsOf(run, abort.signal)) {
      drawn.add(event);
      if (!wanted()) abort.abort();
    }
  } catch (error) {
    if (!abort.signal.aborted) drawn.note({ code: "helper", message: t("run.unreadable", { reason: error.message }) });
  } finally {
    drawn.leave();
  }
}

/** The events of a run from its beginning, as they come, until it ends. Raises Refused, AbortError. */
export async function* eventsOf(run, signal) {
  const response = await request("GET", `/runs/${encodeURIComponent(run)}/events`, { signal });
  for await (const { id, type, data } of readEvents(response)) yield { ...data, type, seq: Number(id) };
}

/**
 * The page without the means to show a run's numbers as those of the conversation. `more`: `readOnly`, for a view that
 * changes nothing; `isPast`, for one in which no time passes.
 */
export function quiet(page, more = {}) {
  const store = { get: (name) => page.store.get(name), set: () => undefined };
  return Object.assign(Object.create(page), { isPart: true, ...more, store });
}
