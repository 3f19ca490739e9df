/** A streaming parser for arguments in tags: `<parameter=path>` or `<arg_key>path</arg_key>`. */

const OPEN =
  /<parameter(?:=|\s{1,20}name=["']?)(?<name>[^"'>\n]{1,100})["']?\s{0,20}>|<arg_key>\s{0,20}(?<key>[^\s<][^<\n]{0,99}?)\s{0,20}<\/arg_key>\s{0,20}<arg_value>/;
const CLOSE = /\n?<\/(?:parameter|arg_value)>/;
const HELD = /\n?(?:<(?:\/[a-z_]{0,9})?)?$/; // text that may be the beginning of CLOSE
const MOST_HELD = 300;

export class PartialTags {
  #name = null;
  #begins = false; // a newline directly after the tag is not part of the value
  #pending = "";

  /** `sink`: `open(name)`, `text(name, piece)`. */
  constructor(sink) {
    this.sink = sink;
  }

  feed(written) {
    let text = this.#pending + written;
    this.#pending = "";
    while (text) text = this.#name === null ? this.#outside(text) : this.#inside(text);
  }

  #outside(text) {
    const found = OPEN.exec(text);
    if (!found) {
      this.#pending = text.slice(-MOST_HELD);
      return "";
    }
    this.#name = found.groups.name ?? found.groups.key;
    this.#begins = true;
    this.sink.open(this.#name);
    return text.slice(found.index + found[0].length);
  }

  #inside(given) {
    const text = this.#begins ? given.replace(/^\n/, "") : given;
    const found = CLOSE.exec(text);
    const held = found ? 0 : HELD.exec(text.slice(-16))[0].length;
    const piece = text.slice(0, found?.index ?? text.length - held);
    this.#begins = false;
    if (piece) this.sink.text(this.#name, piece);
    if (!found) {
      this.#pending = text.slice(text.length - held);
      return "";
    }
    this.#name = null;
    return text.slice(found.index + found[0].length);
  }
}
