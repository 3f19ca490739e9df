/** A streaming parser for the fields of an incomplete JSON object; it looks at each character once. */

const ESCAPES = { b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };
// Some models write the call itself: {"name": ..., "arguments": {...}}.
const WRAPPERS = new Set(["arguments", "parameters"]);
const STRING_STOP = /["\\]/g;
const NESTED_STOP = /["\\{}[\]]/g;
const SPACE = /\s/;

// state -> consumes characters from `at` on; returns the next position, or -1 to wait for more input
const STATES = {
  start: (reader, text, at) => (text[at] === "{" ? reader.go("key", at + 1) : reader.fail(at)),
  key: (reader, text, at) => {
    if (text[at] === ",") return at + 1;
    if (text[at] === "}") return reader.go("end", at + 1);
    reader.name = "";
    return text[at] === '"' ? reader.go("name", at + 1) : reader.fail(at);
  },
  name: (reader, text, at) => reader.string(text, at, (piece) => (reader.name += piece), "colon"),
  colon: (reader, text, at) => (text[at] === ":" ? reader.go("value", at + 1) : reader.fail(at)),
  value: (reader, text, at) => {
    if (text[at] === "{" && WRAPPERS.has(reader.name)) {
      reader.sink.restart();
      return reader.go("key", at + 1);
    }
    reader.sink.open(reader.name);
    if (text[at] === '"') return reader.go("string", at + 1);
    reader.depth = 0;
    return reader.go("{[".includes(text[at]) ? "nested" : "literal", at);
  },
  string: (reader, text, at) => reader.string(text, at, (piece) => reader.sink.text(reader.name, piece), "key"),
  literal: (reader, text, at) => {
    const end = at + text.slice(at).search(/[,}]|$/);
    reader.sink.text(reader.name, text.slice(at, end).trim());
    return end < text.length ? reader.go("key", end) : end;
  },
  nested: (reader, text, at) => reader.nested(text, at),
  end: (_, text) => text.length,
  failed: (_, text) => text.length,
};

export class PartialObject {
  name = "";
  depth = 0;
  #state = "start";
  #pending = ""; // an incomplete escape sequence
  #quoted = false; // inside a string of a nested value

  /** `sink`: `open(name)`, `text(name, piece)`, `restart()` when a wrapper was found, `failed()` if it is not JSON. */
  constructor(sink) {
    this.sink = sink;
  }

  feed(written) {
    const text = this.#pending + written;
    this.#pending = "";
    for (let at = 0; at >= 0 && at < text.length; ) {
      const inside = this.#state === "string" || this.#state === "name" || this.#state === "nested";
      if (!inside && SPACE.test(text[at])) at += 1;
      else at = STATES[this.#state](this, text, at);
    }
  }

  go(state, at) {
    this.#state = state;
    return at;
  }

  fail(at) {
    this.sink.failed();
    return this.go("failed", at);
  }

  /** Characters of a string, decoded, up to its end. */
  string(text, at, take, next) {
    STRING_STOP.lastIndex = at;
    const stop = STRING_STOP.exec(text)?.index ?? text.length;
    if (stop > at) take(text.slice(at, stop));
    if (stop === text.length) return stop;
    if (text[stop] === '"') return this.go(next, stop + 1);
    const length = text[stop + 1] === "u" ? 6 : 2;
    if (stop + length > text.length) return this.#wait(text, stop);
    take(decoded(text.slice(stop + 1, stop + length)));
    return stop + length;
  }

  /** The raw text of a nested object or list. */
  nested(text, at) {
    const from = at;
    NESTED_STOP.lastIndex = at;
    for (let found = NESTED_STOP.exec(text); found; found = NESTED_STOP.exec(text)) {
      const here = found.index;
      if (found[0] === "\\") {
        if (here + 2 > text.length) {
          this.sink.text(this.name, text.slice(from, here));
          return this.#wait(text, here);
        }
        NESTED_STOP.lastIndex = here + 2;
      } else if (found[0] === '"') {
        this.#quoted = !this.#quoted;
      } else if (!this.#quoted) {
        this.depth += "{[".includes(found[0]) ? 1 : -1;
        if (this.depth > 0) continue;
        this.sink.text(this.name, text.slice(from, here + 1));
        return this.go("key", here + 1);
      }
    }
    if (from < text.length) this.sink.text(this.name, text.slice(from));
    return text.length;
  }

  #wait(text, at) {
    this.#pending = text.slice(at);
    return -1;
  }
}

/** The character of an escape sequence: `n` or `u00e9`. */
function decoded(code) {
  if (code[0] !== "u") return ESCAPES[code] ?? code;
  const unit = Number.parseInt(code.slice(1), 16);
  return Number.isNaN(unit) ? "\ufffd" : String.fromCharCode(unit);
}
