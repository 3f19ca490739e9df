/** The rate of a frame's messages: too many would keep the page from drawing. */

const MOST = 200; // messages of one second; of those with more weight fewer

export class MessageRate {
  #since = 0;
  #weight = 0;

  /** Counts a message. Returns whether there are too many. */
  isOver(weight = 1) {
    const now = performance.now();
    if (now - this.#since > 1_000) [this.#since, this.#weight] = [now, 0];
    return (this.#weight += weight) > MOST;
  }
}
