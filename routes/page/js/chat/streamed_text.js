/** Text as it has come, in pieces: its end can be taken back. */

export class StreamedText {
  #pieces = [];

  constructor(text = "") {
    this.add(text);
  }

  get text() {
    return this.#pieces.join("");
  }

  add(text) {
    if (text) this.#pieces.push(text);
  }

  /**
   * Takes back the last `count` Unicode characters; returns how many there were. They are counted in each piece, as the
   * server has counted them: it may have sent the two halves of one in two pieces.
   */
  takeBack(count) {
    let left = count;
    while (left > 0 && this.#pieces.length) {
      const characters = [...this.#pieces.pop()];
      this.add(characters.slice(0, -left).join(""));
      left -= Math.min(left, characters.length);
    }
    return count - left;
  }
}
