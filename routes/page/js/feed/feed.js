/** The page's event stream, `GET /events`, with reconnection and heartbeat monitoring. */

import { request, Refused } from "./api.js";
import { ConnectionSlot } from "./connection_slot.js";
import { EventReader } from "./sse.js";
import { guarded } from "../dom/errors.js";

const MIN_BACKOFF_MS = 500,
  MAX_BACKOFF_MS = 15_000; // between two attempts
const STABLE_MS = 5_000; // a connection that held so long was a good one
const SILENCE_TIMEOUT_MS = 33_000; // the server sends something every 15 s: a connection that misses two is dead
const WAKE_TIMEOUT_MS = 20_000; // the same after the tab was hidden: a laptop that was closed has lost its connection
const CHECK_MS = 5_000;
const PERMANENT = [400, 401, 403, 404]; // retrying these statuses would not help
// What rows of long lists are known by: one that this connection has told before comes as that alone.
const KEYS = { approvals: ["run", "call"], jobs: ["id"] };

export class Feed {
  #session = null;
  #cursor = null;
  #abort = null;
  #generation = 0;
  #rows = {};
  #slot = new ConnectionSlot();
  #receivedAt = 0; // when data arrived last, by the wall clock: monotonic clocks stop during sleep

  /** `onEvent({id, type, data, run, seq})`; `onConnection("connecting" | "open" | "lost" | "refused", {in_s?, why?})`. */
  constructor(onEvent, onConnection) {
    this.onEvent = onEvent;
    this.onConnection = onConnection;
    addEventListener("online", () => this.#abortIfSilent(WAKE_TIMEOUT_MS));
    document.addEventListener("visibilitychange", () =>
      this.#abortIfSilent(document.hidden ? SILENCE_TIMEOUT_MS : WAKE_TIMEOUT_MS),
    );
  }

  /** Listen to a session (or to none) from behind `cursor` on (`run_x:17`, or null). */
  follow(session, cursor) {
    this.#session = session;
    this.#cursor = cursor;
    this.restart();
  }

  /** Reconnects immediately. */
  restart() {
    this.#abort?.abort();
    this.#listen(++this.#generation);
  }

  close() {
    this.#generation++;
    this.#abort?.abort();
  }

  /** Aborts a connection that has been silent for longer than this; it is opened again. */
  #abortIfSilent(most_ms) {
    if (this.#receivedAt && Date.now() - this.#receivedAt > most_ms) this.#abort?.abort();
  }

  async #listen(generation) {
    let wait_ms = MIN_BACKOFF_MS;
    while (generation === this.#generation) {
      await this.#slot.available();
      if (generation !== this.#generation) return;
      const began = performance.now(),
        before = this.#cursor;
      let why;
      this.onConnection("connecting", {});
      try {
        await this.#readUntilClosed(generation);
      } catch (error) {
        why = error;
      }
      if (generation !== this.#generation) return;
      if (why instanceof Refused && PERMANENT.includes(why.status)) return this.onConnection("refused", { why });
      if (this.#slot.resting) continue;
      if (performance.now() - began > STABLE_MS || this.#cursor !== before) wait_ms = MIN_BACKOFF_MS;
      const pause_ms = wait_ms * (0.7 + 0.6 * Math.random());
      this.onConnection("lost", { why, in_s: pause_ms / 1000 });
      await this.#pause(pause_ms);
      wait_ms = Math.min(MAX_BACKOFF_MS, wait_ms * 1.7);
    }
  }

  /** Resolves after `ms`, or sooner when the machine is online again or the tab becomes visible. */
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

  /** One connection, until it ends. Raises Refused, SyntaxError for an invalid event, AbortError when it is aborted. */
  async #readUntilClosed(generation) {
    const abort = (this.#abort = new AbortController());
    const where = this.#session ? `?session=${encodeURIComponent(this.#session)}` : "";
    const headers = this.#cursor ? { "last-event-id": this.#cursor } : {};
    this.#slot.take(() => abort.abort());
    let silent;
    try {
      const response = await request("GET", `/events${where}`, { headers, signal: abort.signal });
      this.onConnection("open", {});
      this.#rows = {};
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const events = new EventReader();
      this.#receivedAt = Date.now();
      silent = setInterval(() => this.#abortIfSilent(SILENCE_TIMEOUT_MS), CHECK_MS);
      for (;;) {
        const { value, done } = await reader.read();
        if (done || generation !== this.#generation) return;
        this.#receivedAt = Date.now();
        for (const event of events.feed(value)) {
          if (generation !== this.#generation) return; // a handler has switched to another session
          this.#dispatch(event);
        }
      }
    } finally {
      clearInterval(silent);
      this.#receivedAt = 0;
      abort.abort();
    }
  }

  /** Advances the cursor before dispatch: an event whose handler throws is not delivered again after a reconnect. */
  #dispatch({ id, type, data }) {
    if (type === "state") return guarded(this.onEvent, { id, type, data: this.#withKnownRows(data) });
    if (id === null) return guarded(this.onEvent, { id, type, data, run: data.run, seq: 0 });
    this.#cursor = id;
    const colon = id.lastIndexOf(":");
    guarded(this.onEvent, { id, type, data, run: id.slice(0, colon), seq: Number(id.slice(colon + 1)) });
  }

  /** The state with the rows that it only names. */
  #withKnownRows(state) {
    const whole = { ...state };
    for (const [name, keys] of Object.entries(KEYS)) {
      if (!state[name]) continue;
      const known = this.#rows[name] ?? new Map(),
        now = new Map();
      for (const row of state[name]) {
        const key = JSON.stringify(keys.map((one) => row[one]));
        now.set(key, Object.keys(row).length > keys.length ? row : known.get(key));
      }
      this.#rows[name] = now;
      whole[name] = [...now.values()];
    }
    return whole;
  }
}
