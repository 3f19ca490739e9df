/**
 * Coordinates the connections of all tabs: browsers allow six to a server, and the seventh tab would hang. One tab, the
 * leader, keeps its connection permanently, so that it can notify of waiting calls; a hidden tab releases its own after
 * a while, or as soon as another tab needs one, and opens it again when it becomes visible.
 */

import { keptSignIn, token } from "./api.js";

const CHANNEL = "dragoman.feed";
const HIDDEN_MS = 60_000;

export class ConnectionSlot {
  resting = false; // this tab has released its connection
  #isLeader = false;
  #longHidden = false; // hidden for longer than HIDDEN_MS
  #timer = null;
  #cut = () => undefined;
  #wake = () => undefined;
  #channel = "BroadcastChannel" in globalThis ? new BroadcastChannel(CHANNEL) : null;

  constructor() {
    // Held until the tab is closed. Where there are no locks (plain HTTP that is not localhost) no tab lets go.
    if (navigator.locks)
      navigator.locks.request(lockName(), () => this.#becomeLeader()).catch(() => this.#becomeLeader());
    else this.#isLeader = true;
    document.addEventListener("visibilitychange", () => this.#visibilityChanged());
    this.#channel?.addEventListener("message", () => this.#release());
    this.#visibilityChanged();
  }

  /** Resolves when a connection may be opened: at once, unless it was released and the tab is still hidden. */
  async available() {
    if (this.#idle && (this.resting || this.#longHidden)) await new Promise((resolve) => (this.#wake = resolve));
    this.resting = false;
  }

  /** A connection is made; `cut` ends it. */
  take(cut) {
    this.#cut = cut;
    this.#channel?.postMessage("room");
  }

  get #idle() {
    return document.hidden && !this.#isLeader;
  }

  #becomeLeader() {
    this.#isLeader = true;
    this.#wake(); // the previous leader was closed
    return new Promise(() => undefined);
  }

  #visibilityChanged() {
    clearTimeout(this.#timer);
    if (document.hidden) {
      this.#timer = setTimeout(() => {
        this.#longHidden = true;
        this.#release();
      }, HIDDEN_MS);
    } else {
      this.#longHidden = false;
      this.#wake();
    }
  }

  #release() {
    if (!this.#idle) return;
    this.resting = true;
    this.#cut();
  }
}

/** The name of a lock shared by the tabs of one token: its holder keeps its connection. Does not reveal the token. */
function lockName() {
  const sum = [...(token.get() ?? keptSignIn.get() ?? "")].reduce(
    (all, one) => (all * 31 + one.codePointAt(0)) >>> 0,
    7,
  );
  return `${CHANNEL}.${sum.toString(36)}`;
}
