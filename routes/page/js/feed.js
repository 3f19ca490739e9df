/** The page's one connection: `GET /events`, taken up again where it broke, for as long as the page is there. */

import { request, Refused } from "./api.js";
import { EventReader } from "./sse.js";

const FIRST_MS = 500, MOST_MS = 15_000; // between two attempts
const SILENT_MS = 40_000; // the server says something every 15 s: a connection that says nothing is dead

export class Feed {
  #session = null;
  #cursor = null;
  #abort = null;
  #generation = 0;

  /** `onEvent({id, type, data, run, seq})`; `onLink("connecting" | "open" | "lost" | "refused", {in_s?, why?})`. */
  constructor(onEvent, onLink) {
    this.onEvent = onEvent;
    this.onLink = onLink;
  }

  /** Listen to a session (or to none) from behind `cursor` on (`run_x:17`, or null). */
  follow(session, cursor) {
    this.#session = session;
    this.#cursor = cursor;
    this.restart();
  }

  /** Connect anew at once. */
  restart() {
    this.#abort?.abort();
    this.#listen(++this.#generation);
  }

  close() {
    this.#generation++;
    this.#abort?.abort();
  }

  async #listen(generation) {
    let wait_ms = FIRST_MS;
    while (generation === this.#generation) {
      const began = performance.now();
      this.onLink("connecting", {});
      try {
        await this.#once(generation);
        if (generation !== this.#generation) return;
        this.onLink("lost", {});
      } catch (error) {
        if (generation !== this.#generation) return;
        if (error instanceof Refused && [401, 403, 404].includes(error.status)) {
          this.onLink("refused", { why: error });
          return;
        }
        this.onLink("lost", { why: error });
      }
      if (performance.now() - began > 5_000) wait_ms = FIRST_MS;
      await this.#pause(wait_ms * (0.7 + 0.6 * Math.random()));
      wait_ms = Math.min(MOST_MS, wait_ms * 1.7);
    }
  }

  /** Ends after `ms`, or sooner when the machine is online again or somebody looks at the page. */
  #pause(ms) {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        removeEventListener("online", done);
        document.removeEventListener("visibilitychange", done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      addEventListener("online", done);
      document.addEventListener("visibilitychange", done);
    });
  }

  async #once(generation) {
    const abort = (this.#abort = new AbortController());
    const where = this.#session ? `?session=${encodeURIComponent(this.#session)}` : "";
    const headers = this.#cursor ? { "last-event-id": this.#cursor } : {};
    const response = await request("GET", `/events${where}`, { headers, signal: abort.signal });
    this.onLink("open", {});
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const events = new EventReader();
    let silent = setTimeout(() => abort.abort(), SILENT_MS);
    try {
      for (;;) {
        const { value, done } = await reader.read();
        if (done || generation !== this.#generation) return;
        clearTimeout(silent);
        silent = setTimeout(() => abort.abort(), SILENT_MS);
        for (const event of events.feed(value)) this.#tell(event);
      }
    } finally {
      clearTimeout(silent);
      abort.abort();
    }
  }

  #tell(event) {
    if (!event.id) return this.onEvent(event);
    this.#cursor = event.id;
    const colon = event.id.lastIndexOf(":");
    this.onEvent({ ...event, run: event.id.slice(0, colon), seq: Number(event.id.slice(colon + 1)) });
  }
}
