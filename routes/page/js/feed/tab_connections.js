/**
 * Room for the connections of all tabs: browsers allow six to a server, and the seventh tab would hang. One tab keeps
 * its connection whatever happens, so that somebody can be told of what waits; a hidden one lets go of it after a
 * while, at once when another tab needs one, and takes it up again when it is looked at.
 */

import { token } from "./api.js";

const CHANNEL = "dragoman.feed";
const HIDDEN_MS = 60_000;

export class ConnectionSlot {
  resting = false; // the connection was let go of here
  #isLeader = false;
  #longHidden = false; // nobody has looked at this tab for long
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

  /** Resolves when a connection may be made: at once, unless it was let go of and nobody looks at this tab yet. */
  async needed() {
    if (this.#idle && (this.resting || this.#longHidden)) await new Promise((resolve) => (this.#wake = resolve));
    this.resting = false;
  }

  /** A connection is made; `cut` ends it. */
  enter(cut) {
    this.#cut = cut;
    this.#channel?.postMessage("room");
  }

  get #idle() {
    return document.hidden && !this.#isLeader;
  }

  #becomeLeader() {
    this.#isLeader = true;
    this.#wake(); // the tab that led is gone
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

/** The name of a lock: whoever of a person's tabs has it keeps its connection. Says nothing of the token. */
function lockName() {
  const sum = [...(token.get() ?? "")].reduce((all, one) => (all * 31 + one.codePointAt(0)) >>> 0, 7);
  return `${CHANNEL}.${sum.toString(36)}`;
}
