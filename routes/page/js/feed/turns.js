/**
 * Browsers allow six connections to a server, whatever the number of windows, and requests need some of them. Feeds
 * that hold one (of several identities, or of windows without a shared worker) therefore take turns: those that opened
 * theirs last keep it, the others wait. Nothing but random ids is exchanged.
 */

const CHANNEL = "dragoman.feed";
const MOST = 3; // connections that all feeds of a browser hold at a time
const TURN_MS = 20_000;

export class Turns {
  waiting = false;
  #id = crypto.getRandomValues(new Uint32Array(2)).join();
  #later = new Set(); // others that have opened theirs since
  #cut = () => undefined;
  #wake = () => undefined;
  #channel = new BroadcastChannel(CHANNEL);

  constructor() {
    this.#channel.onmessage = ({ data }) => this.#hear(data);
  }

  /** Resolves when a connection may be opened; `wake()` makes that now. */
  async available() {
    if (!this.waiting) return;
    let timer;
    await new Promise((resolve) => {
      this.#wake = resolve;
      timer = setTimeout(resolve, TURN_MS * (0.7 + 0.6 * Math.random()));
    });
    clearTimeout(timer);
    this.waiting = false;
  }

  wake() {
    this.waiting = false;
    this.#wake();
  }

  /** A connection is opened; `cut` ends it. */
  take(cut) {
    this.#cut = cut;
    this.#later.clear();
    this.#channel.postMessage({ taken: this.#id });
  }

  leave() {
    this.#channel.postMessage({ left: this.#id });
  }

  #hear({ taken, left }) {
    if (left) this.#later.delete(left);
    else this.#later.add(taken);
    if (this.#later.size < MOST) this.wake();
    else if (!this.waiting) {
      this.waiting = true;
      this.leave();
      this.#cut();
    }
  }
}
