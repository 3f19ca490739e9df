/**
 * Room for the connections of all tabs: browsers allow six to a server, and the seventh tab would hang. One tab keeps
 * its connection whatever happens, so that somebody can be told of what waits; a hidden one lets go of it after a
 * while, at once when another tab needs one, and takes it up again when it is looked at.
 */

import { token } from "./api.js";

const CHANNEL = "dragoman.feed";
const HIDDEN_MS = 60_000;

export class Room {
  resting = false; // the connection was let go of here
  #leads = false;
  #cut = null;
  #timer = null;
  #wake = () => undefined;
  #others = "BroadcastChannel" in globalThis ? new BroadcastChannel(CHANNEL) : null;

  constructor() {
    // Held until the tab is closed. Where there are no locks (plain HTTP that is not localhost) no tab lets go.
    if (navigator.locks) navigator.locks.request(leader(), () => this.#lead()).catch(() => this.#lead());
    else this.#leads = true;
    document.addEventListener("visibilitychange", () => this.#look());
    this.#others?.addEventListener("message", () => this.#rest());
  }

  /** Resolves when a connection may be made: at once, unless nobody looks at this tab and another one leads. */
  async needed() {
    if (this.resting) await this.#seen();
    this.resting = false;
  }

  /** A connection is made; `cut` ends it. Returns what to call at its end. */
  enter(cut) {
    this.#cut = cut;
    this.#others?.postMessage("room");
    this.#look();
    return () => {
      if (this.#cut === cut) this.#cut = null;
    };
  }

  #lead() {
    this.#leads = true;
    this.#wake(); // the tab that led is gone
    return new Promise(() => undefined);
  }

  #look() {
    clearTimeout(this.#timer);
    if (document.hidden) this.#timer = setTimeout(() => this.#rest(), HIDDEN_MS);
  }

  #rest() {
    if (!document.hidden || this.#leads || !this.#cut) return;
    this.resting = true;
    this.#cut();
  }

  #seen() {
    if (!document.hidden || this.#leads) return;
    return new Promise((resolve) => {
      const look = () => {
        if (document.hidden && !this.#leads) return;
        document.removeEventListener("visibilitychange", look);
        resolve();
      };
      this.#wake = look;
      document.addEventListener("visibilitychange", look);
    });
  }
}

/** The name of a lock: whoever of a person's tabs has it keeps its connection. Says nothing of the token. */
function leader() {
  const sum = [...(token.get() ?? "")].reduce((all, one) => (all * 31 + one.codePointAt(0)) >>> 0, 7);
  return `${CHANNEL}.${sum.toString(36)}`;
}
