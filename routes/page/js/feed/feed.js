/**
 * The page's events, from the one connection of all windows (hub.js): in a shared worker, or, where there is none or it
 * does not answer, in the page itself.
 */

import { credentials, get, Refused, signalSignedOut } from "./api.js";
import { guarded } from "../dom/errors.js";
import { parseJSON } from "../text/json.js";

const PING_MS = 10_000; // a worker that has not answered by then is gone

export class Feed {
  #following = { session: null, cursor: null, turn: 0 };
  #port = null;
  #identity = null;
  #pings = null;
  #alive = false; // something came since the last ping
  #answered = false; // at all
  #state = {}; // each field as JSON
  #alone = !("SharedWorker" in globalThis);

  /** `onEvent({id, type, data, run, seq})`; `onConnection("connecting" | "open" | "lost" | "refused", {in_s?, why?})`. */
  constructor(onEvent, onConnection) {
    this.onEvent = onEvent;
    this.onConnection = onConnection;
    addEventListener("online", () => this.restart());
    addEventListener("offline", () => this.#checkOffline());
    addEventListener("pagehide", () => this.close());
    addEventListener("pageshow", ({ persisted }) => persisted && this.#follow());
    document.addEventListener("visibilitychange", () => document.hidden || this.#port?.postMessage({ seen: true }));
  }

  /** Listen to a session (or to none) from behind `cursor` on (`run_x:17`, or null). */
  follow(session, cursor) {
    this.#following = { session, cursor, turn: this.#following.turn + 1 };
    this.#follow();
  }

  /** Reconnects immediately. */
  restart() {
    if (this.#port) this.#follow();
  }

  close() {
    clearInterval(this.#pings);
    this.#port?.postMessage({ bye: true });
    this.#port?.close();
    this.#port = null;
  }

  #follow() {
    let who;
    try {
      who = credentials();
    } catch (why) {
      return this.onConnection("refused", { why });
    }
    const identity = JSON.stringify(who);
    if (!this.#port || identity !== this.#identity) this.#join(identity);
    this.#port.postMessage({ who, follow: this.#following, seen: !document.hidden });
  }

  #join(identity) {
    this.close();
    this.#identity = identity;
    const port = (this.#port = this.#alone ? ownPort() : sharedPort(identity, () => this.#ping()));
    port.onmessage = ({ data }) => this.#hear(port, data);
    this.#alive = this.#answered = false;
    this.#pings = setInterval(() => this.#ping(), PING_MS);
  }

  #ping() {
    if (this.#alive) {
      this.#alive = false;
      return this.#port.postMessage({});
    }
    this.#alone ||= !this.#answered; // without workers, or there may be another one
    this.close();
    this.#follow();
  }

  #hear(port, { events = [], turn, connection, left }) {
    if (port !== this.#port) return;
    this.#alive = this.#answered = true;
    if (left) return this.#follow();
    if (connection) this.#report(connection);
    for (const event of events) // a handler may switch to another session
      if (event.type === "state" || turn === this.#following.turn) this.#dispatch(event);
  }

  /** Advances the cursor before dispatch: an event whose handler throws is not delivered again after a reconnect. */
  #dispatch({ id, type, data: text }) {
    if (id) this.#following.cursor = id;
    guarded(() => {
      const data = type === "state" ? this.#changed(parseJSON(text)) : parseJSON(text);
      const [run, seq] = id?.split(":") ?? [data.run, 0];
      this.onEvent({ id, type, data, run, seq: Number(seq) });
    });
  }

  /** Each connection begins with the whole state. */
  #changed(state) {
    const known = this.#state;
    this.#state = {
      ...known,
      ...Object.fromEntries(Object.entries(state).map(([name, now]) => [name, JSON.stringify(now)])),
    };
    return Object.fromEntries(Object.entries(state).filter(([name]) => this.#state[name] !== known[name]));
  }

  #report({ state, why, ...more }) {
    if (why?.status === 401) {
      if (JSON.stringify(credentials()) !== this.#identity) return this.#follow(); // signed in anew by another window
      signalSignedOut(why.message);
    }
    this.onConnection(state, why ? { why: new Refused(why.status, why.code, why.message) } : more);
  }

  /** The browser says so at once; a server on this machine is still there. */
  async #checkOffline() {
    try {
      await get("/livez", { wait_ms: 2_000 });
    } catch {
      if (!navigator.onLine) this.onConnection("lost", { offline: true });
    }
  }
}

let policy = null;

/** The port of the worker that all windows of this identity share. `failed` is called if it cannot be loaded. */
function sharedPort(identity, failed) {
  const address = new URL("./feed_worker.js", import.meta.url).href;
  policy ??= window.trustedTypes?.createPolicy("feed-worker", { createScriptURL: () => address });
  const sum = [...identity].reduce((all, one) => (all * 31 + one.codePointAt(0)) >>> 0, 7); // does not reveal the token
  const name = `dragoman.feed.${sum.toString(36)}`;
  const worker = new SharedWorker(policy?.createScriptURL("") ?? address, { type: "module", name });
  worker.onerror = failed;
  return worker.port;
}

/** The port of a hub in the page itself. */
function ownPort() {
  const { port1, port2 } = new MessageChannel();
  import("./hub.js").then(({ admit }) => admit(port2)).catch(() => null); // a ping finds out, and it is tried again
  return port1;
}
