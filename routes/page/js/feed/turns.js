/**
 * Browsers allow six connections to a server, whatever the number of windows, and requests need some of them. Feeds
 * that hold one (of several identities, or of windows without a shared worker) take turns: those that opened theirs
 * last keep it. Nothing but random ids is exchanged.
 */

const CHANNEL = "dragoman.feed";
const MOST = 3; // connections that all feeds of a browser hold at a time
const TURN_MS = 20_000;

export class Turns {
  isOver = false; // others have the connections
  #id = crypto.getRandomValues(new Uint32Array(2)).join();
  #later = new Set(); // others that have opened theirs since
  #channel = new BroadcastChannel(CHANNEL);
  #wake = () => undefined;

  /** `cut` ends this feed's connection. */
  constructor(cut) {
    this.#channel.onmessage = ({ data: [id, holds] }) => {
      if (holds) this.#later.add(id);
      else this.#later.delete(id);
      if (this.#later.size < MOST) this.wake();
      else if (!this.isOver) {
        this.isOver = true;
        this.tell(false);
        cut();
      }
    };
  }

  /** Tells the others that this feed holds a connection, or none any more. */
  tell(holds) {
    if (holds) this.#later.clear();
    this.#channel.postMessage([this.#id, holds]);
  }

  /** Resolves after `ms`, or sooner by `wake()`. */
  async pause(ms = this.isOver ? TURN_MS : 0) {
    if (!ms) return;
    let timer;
    await new Promise((resolve) => {
      this.#wake = resolve;
      timer = setTimeout(resolve, ms * (0.7 + 0.6 * Math.random()));
    });
    clearTimeout(timer);
    this.isOver = false;
  }

  wake() {
    this.isOver = false;
    this.#wake();
  }
}
