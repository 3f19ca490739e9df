/**
 * The page's events, from the one connection of all windows (hub.js): in a shared worker, or, where there is none or it
 * does not answer, in the page itself.
 */

import { credentials, get, Refused, signalSignedOut } from "./api.js";
import { guarded } from "../dom/errors.js";
import { parseJSON } from "../text/json.js";

const ANSWER_MS = 5_000; // a worker that is not there by then is done without, until it is
const PING_MS = 10_000;
const OFFLINE_MS = 2_000;

export class Feed {
  #following = { session: null, cursor: null, turn: 0 };
  #port = null;
  #identity = null;
  #heard = true; // since it was joined, or since the last ping
  #pinged = false;
  #alone = !("SharedWorker" in globalThis);
  #late = null; // the port of a worker that has not answered in time

  /** `onEvent({id, type, data, run, seq})`; `onConnection("connecting" | "open" | "lost" | "refused", {in_s?, why?})`. */
  constructor(onEvent, onConnection) {
    this.onEvent = onEvent;
    this.onConnection = onConnection;
    setInterval(() => this.#ping(), PING_MS);
    addEventListener("online", () => this.restart());
    addEventListener("offline", () => this.#checkOffline());
    addEventListener("pagehide", () => this.#leave());
    addEventListener("pageshow", ({ persisted }) => persisted && this.#follow());
    document.addEventListener("visibilitychange", () => document.hidden || this.#post({ seen: true }));
  }

  /** Listen to a session (or to none) from behind `cursor` on (`run_x:17`, or null). */
  follow(session, cursor) {
    this.#following = { session, cursor, turn: this.#following.turn + 1 };
    this.#follow();
  }

  /** Reconnects immediately. */
  restart() {
    this.#post({ restart: true });
  }

  close() {
    this.#following.turn++;
    this.#leave();
  }

  #post(message) {
    this.#port?.postMessage(message);
  }

  #leave() {
    this.#post({ bye: true });
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
    this.#post({ who, follow: this.#following, seen: !document.hidden });
  }

  #join(identity) {
    this.#leave();
    this.#late = null;
    this.#identity = identity;
    const port = (this.#port = this.#alone ? ownPort() : sharedPort(identity, () => this.#giveUp(port, null)));
    port.onmessage = ({ data }) => this.#hear(port, data);
    this.#heard = this.#pinged = false;
    if (!this.#alone) setTimeout(() => this.#giveUp(port), ANSWER_MS);
  }

  /** The worker has not answered at all. */
  #giveUp(port, late = port) {
    if (port !== this.#port || this.#heard) return;
    this.#alone = true;
    this.#port = null;
    this.#follow();
    this.#late = late;
  }

  #ping() {
    if (!this.#port) return;
    if (this.#pinged && !this.#heard) {
      this.#leave(); // the worker is gone: there may be another one
      return this.#follow();
    }
    this.#heard = false;
    this.#pinged = true;
    this.#post({});
  }

  #hear(port, { events = [], turn, connection, left }) {
    if (port === this.#late) {
      this.#leave();
      this.#port = port;
      this.#alone = false;
      this.#late = null;
      return this.#follow();
    }
    if (port !== this.#port) return;
    this.#heard = true;
    if (left) return this.#follow();
    if (connection) this.#report(connection);
    for (const event of events) // a handler may switch to another session
      if (event.type === "state" || turn === this.#following.turn) this.#dispatch(event);
  }

  /** Advances the cursor before dispatch: an event whose handler throws is not delivered again after a reconnect. */
  #dispatch({ id, type, data: text }) {
    if (id) this.#following.cursor = id;
    guarded(() => {
      const data = parseJSON(text);
      const [run, seq] = id?.split(":") ?? [data.run, 0];
      this.onEvent({ id, type, data, run, seq: Number(seq) });
    });
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
      await get("/livez", { wait_ms: OFFLINE_MS });
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
  const worker = new SharedWorker(policy?.createScriptURL("") ?? address, { type: "module", name: digest(identity) });
  worker.onerror = failed;
  return worker.port;
}

function ownPort() {
  const { port1, port2 } = new MessageChannel();
  import("./hub.js").then(
    ({ Hubs }) => new Hubs().admit(port2),
    () => null, // the pings find out, and it is tried again
  );
  return port1;
}

/** A name that does not reveal the token. */
function digest(identity) {
  const sum = [...identity].reduce((all, one) => (all * 31 + one.codePointAt(0)) >>> 0, 7);
  return `dragoman.feed.${sum.toString(36)}`;
}
