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
  #long = false; // nobody has looked at this tab for long
  #timer = null;
  #cut = () => undefined;
  #wake = () => undefined;
  #others = "BroadcastChannel" in globalThis ? new BroadcastChannel(CHANNEL) : null;

  constructor() {
    // Held until the tab is closed. Where there are no locks (plain HTTP that is not localhost) no tab lets go.
    if (navigator.locks) navigator.locks.request(leader(), () => this.#lead()).catch(() => this.#lead());
    else this.#leads = true;
    document.addEventListener("visibilitychange", () => this.#look());
    this.#others?.addEventListener("message", () => this.#rest());
    this.#look();
  }

  /** Resolves when a connection may be made: at once, unless it was let go of and nobody looks at this tab yet. */
  async needed() {
    if (this.#idle && (this.resting || this.#long)) await new Promise((resolve) => (this.#wake = resolve));
    this.resting = false;
  }

  /** A connection is made; `cut` ends it. */
  enter(cut) {
    this.#cut = cut;
    this.#others?.postMessage("room");
  }

  get #idle() {
    return document.hidden && !this.#leads;
  }

  #lead() {
    this.#leads = true;
    this.#wake(); // the tab that led is gone
    return new Promise(() => undefined);
  }

  #look() {
    clearTimeout(this.#timer);
    if (document.hidden) {
      this.#timer = setTimeout(() => {
        this.#long = true;
        this.#rest();
      }, HIDDEN_MS);
    } else {
      this.#long = false;
      this.#wake();
    }
  }

  #rest() {
    if (!this.#idle) return;
    this.resting = true;
    this.#cut();
  }
}

/** The name of a lock: whoever of a person's tabs has it keeps its connection. Says nothing of the token. */
function leader() {
  const sum = [...(token.get() ?? "")].reduce((all, one) => (all * 31 + one.codePointAt(0)) >>> 0, 7);
  return `${CHANNEL}.${sum.toString(36)}`;
}
