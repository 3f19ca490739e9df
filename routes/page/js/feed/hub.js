/**
 * One `GET /events` for all windows of an identity, in a shared worker; in a window itself where there is none.
 *
 * Each window follows a session from a place of its own. Windows at the same place of the same session share one
 * `session=` of the request, so that none of them sees an event twice or misses one. A window that comes or goes on to
 * another session makes a new connection, which the old one outlives until it is open: the others notice nothing.
 */

import { EventReader } from "./sse.js";
import { parseJSON } from "../text/json.js";
import { Turns } from "./turns.js";

const MIN_BACKOFF_MS = 500,
  MAX_BACKOFF_MS = 15_000; // between two attempts
const STABLE_MS = 5_000; // a connection that held so long was a good one
const SILENCE_TIMEOUT_MS = 33_000; // the server sends something every 15 s: a connection that misses two is dead
const WAKE_TIMEOUT_MS = 20_000; // the same when a window is looked at: a laptop that was closed has lost its connection
const CHECK_MS = 5_000;
const SOON_MS = 5; // windows that come together share an attempt
const GONE_MS = 150_000; // hidden windows send a ping once a minute
const MOST = 64; // sessions of one connection: the windows that were looked at last
const PERMANENT = [400, 401, 403, 404]; // retrying these statuses would not help
// What rows of long lists are known by: one that this connection had before comes as that alone.
const KEYS = { approvals: ["run", "call"], jobs: ["id"] };

/** Hubs by identity. The headers are compared whole: the name of a worker is only a digest of them. */
const hubs = new Map();

/** A window speaks by its port. */
export function admit(port) {
  let hub = null;
  const window = { port };
  port.onmessage = ({ data }) => {
    window.seenAt = Date.now();
    if (data.who) {
      const name = JSON.stringify(data.who);
      hub = hubs.get(name) ?? new Hub(data.who);
      hubs.set(name, hub);
    }
    hub?.hear(window, data);
  };
}

class Hub {
  #who; // the headers of the identity
  #windows = new Set();
  #opening = null; // AbortControllers of the attempt under way,
  #open = null; // and of the connection that delivers
  #places = [];
  #generation = 0;
  #soon = null;
  #turns = new Turns(() => this.#abort());
  #receivedAt = 0; // when data arrived last, by the wall clock: monotonic clocks stop during sleep
  #delivered = false; // events of a session, by the last attempt

  constructor(who) {
    this.#who = who;
    setInterval(() => this.#check(SILENCE_TIMEOUT_MS), CHECK_MS);
  }

  /** A message of a window: `{follow, seen}`, `{seen}`, `{bye}`, or a ping. */
  hear(window, { follow, seen, bye }) {
    if (bye) return this.#remove(window);
    if (follow) this.#follow(window, follow);
    else window.port.postMessage({ left: !this.#windows.has(window) });
    if (!seen || !this.#windows.has(window)) return;
    window.seenAt = Date.now();
    this.#check(WAKE_TIMEOUT_MS);
    this.#turns.wake();
    const isFollowed = this.#places.some((place) => place.windows.has(window));
    if (window.following.session && !window.refused && !isFollowed) this.#renew();
  }

  #follow(window, following) {
    for (const place of this.#places) place.windows.delete(window);
    Object.assign(window, { following, seenAt: Date.now(), refused: false });
    this.#windows.add(window);
    this.#tell("connecting", {}, [window]);
    this.#renew();
  }

  #remove(window) {
    this.#windows.delete(window);
    for (const place of this.#places) place.windows.delete(window);
    if (this.#windows.size) return;
    this.#generation++;
    this.#abort();
    this.#turns.tell(false);
  }

  #abort() {
    this.#opening?.abort();
    this.#open?.abort();
  }

  #check(silent_ms) {
    if (Date.now() - this.#receivedAt > silent_ms) this.#abort();
    for (const window of this.#windows) if (Date.now() - window.seenAt > GONE_MS) this.#remove(window);
  }

  /** Begins another attempt; what is open delivers until then. */
  #renew() {
    this.#generation++;
    this.#opening?.abort();
    this.#turns.wake();
    this.#soon ??= setTimeout(() => {
      this.#soon = null;
      if (this.#windows.size) this.#listen(this.#generation);
    }, SOON_MS);
  }

  async #listen(generation) {
    const isCurrent = () => generation === this.#generation;
    let wait_ms = MIN_BACKOFF_MS;
    while (isCurrent()) {
      await this.#turns.pause();
      if (!isCurrent()) return;
      const began = performance.now();
      this.#delivered = false;
      const why = await this.#readUntilClosed().catch((error) => error);
      if (!isCurrent()) return;
      this.#open?.abort(); // that of an attempt before, which is not renewed
      if (PERMANENT.includes(why?.status) && this.#refuse(why)) return;
      if (this.#turns.isOver || PERMANENT.includes(why?.status)) continue;
      if (performance.now() - began > STABLE_MS || this.#delivered) wait_ms = MIN_BACKOFF_MS;
      this.#tell("lost", { in_s: wait_ms / 1000 });
      await this.#turns.pause(wait_ms);
      wait_ms = Math.min(MAX_BACKOFF_MS, wait_ms * 1.7);
    }
  }

  /** Refuses the one session of the request, or all windows; then it returns true: nothing is left to be followed. */
  #refuse({ status, code, message }) {
    const [only, ...others] = this.#groups();
    const windows = only && !others.length && [400, 404].includes(status) ? only.windows : this.#windows;
    this.#tell("refused", { why: { status, code, message } }, windows);
    return windows === this.#windows;
  }

  /** The windows by what they follow: the places of a request. */
  #groups() {
    const groups = new Map();
    for (const window of [...this.#windows].sort((a, b) => b.seenAt - a.seenAt)) {
      const { session, cursor } = window.following;
      const name = `${session} ${cursor}`;
      if (!session || window.refused || (groups.size === MOST && !groups.has(name))) continue;
      if (!groups.has(name)) groups.set(name, { session, cursor, windows: new Set() });
      groups.get(name).windows.add(window);
    }
    return [...groups.values()];
  }

  /** One connection, until it ends. Raises an error with `status`, SyntaxError for an invalid event, AbortError. */
  async #readUntilClosed() {
    const abort = (this.#opening = new AbortController());
    const places = this.#groups();
    const windows = new Set(this.#windows); // later ones may be of another person, whom only a proxy can tell apart
    const sessions = places.map(({ session }) => `session=${encodeURIComponent(session)}`).join("&");
    const cursors = places.flatMap(({ cursor }, at) => (cursor ? [`${at}/${cursor}`] : [])).join();
    const headers = { ...this.#who, ...(cursors && { "last-event-id": cursors }) };
    this.#turns.tell(true);
    this.#receivedAt = Date.now();
    // Requests of one address wait for each other where answers might be kept.
    const options = { headers, signal: abort.signal, cache: "no-store" };
    const response = await fetch(`/events${sessions && "?"}${sessions}`, options);
    const { error } = response.ok ? {} : ((await response.json().catch(() => null)) ?? {});
    if (!response.ok) throw Object.assign(new Error(), error, { status: response.status });
    this.#open?.abort();
    [this.#open, this.#opening] = [abort, null];
    this.#places = places;
    this.#tell("open");
    try {
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const events = new EventReader(),
        rows = {};
      while (true) {
        const { value, done } = await reader.read();
        if (done || abort.signal.aborted) return;
        this.#receivedAt = Date.now();
        this.#deliver(events.feed(value), { places, windows, rows });
      }
    } finally {
      abort.abort();
    }
  }

  /** Sends each window its share of the events, as one message; their data as text, in which numbers are exact. */
  #deliver(events, { places, windows: all, rows }) {
    const shares = new Map();
    const give = (windows, event) => {
      for (const window of windows) (shares.get(window) ?? shares.set(window, []).get(window)).push(event);
    };
    for (const event of events) {
      const { id, type, data } = event;
      if (type === "state") {
        const whole = withKnownRows(parseJSON(data), rows);
        give(all, { ...event, data: JSON.stringify(whole) });
      } else if (type === "session.refused") {
        const { place, code, message } = parseJSON(data);
        const status = code === "not_found" ? 404 : 400;
        this.#tell("refused", { why: { status, code, message } }, places[place].windows);
      } else if (id) {
        const [cursor, at = 0] = id.split("/").reverse();
        const windows = places[at]?.windows ?? [];
        for (const window of windows) window.following.cursor = cursor;
        give(windows, { ...event, id: cursor });
        this.#delivered = true;
      } else {
        const about = parseJSON(data).session;
        for (const { session, windows } of places) if (session === about) give(windows, event);
      }
    }
    for (const [window, share] of shares) window.port.postMessage({ turn: window.following.turn, events: share });
  }

  /** Tells windows of the connection, each if that is news for it. */
  #tell(state, more = {}, windows = this.#windows) {
    for (const window of windows) {
      if (window.refused || (state === "open" && window.sent === "open")) continue;
      Object.assign(window, { sent: state, refused: state === "refused" });
      window.port.postMessage({ connection: { state, ...more } });
    }
  }
}

/** The state with the rows that it only names. */
function withKnownRows({ type, ...state }, rows) {
  for (const [name, keys] of Object.entries(KEYS)) {
    if (!state[name]) continue;
    const known = rows[name] ?? new Map();
    rows[name] = new Map();
    for (const row of state[name]) {
      const key = JSON.stringify(keys.map((one) => row[one]));
      rows[name].set(key, Object.keys(row).length > keys.length ? row : known.get(key));
    }
    state[name] = [...rows[name].values()];
  }
  return state;
}
