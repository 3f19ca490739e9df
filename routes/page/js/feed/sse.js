/** Parses Server-Sent Events as the HTML standard defines them (9.2), from chunks of any size, in linear time. */

import { parseJSON } from "../text/json.js";

const LINE_END = /\r\n|\n|\r/g;

/** The events of a response as they come, until it ends: `{id, type, data}`. Raises SyntaxError for invalid JSON. */
export async function* readEvents(response) {
  const events = new EventReader();
  const text = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let piece = await text.read(); !piece.done; piece = await text.read())
      for (const event of events.feed(piece.value)) yield { ...event, data: parseJSON(event.data) };
  } finally {
    text.cancel().catch(() => undefined); // the connection may be broken
  }
}

export class EventReader {
  #pieces = []; // of the line that has not ended
  #returned = false; // the last character was a CR: an LF behind it ends no line of its own
  #begun = false;
  #id = null;
  #type = "";
  #data = [];

  /** The completed events: `{id, type, data}`, `data` as text. */
  feed(text) {
    const events = [];
    let from = 0;
    if (text && !this.#begun) {
      this.#begun = true;
      if (text[0] === "\ufeff") from = 1;
    }
    if (text && this.#returned && text[from] === "\n") from++;
    if (text) this.#returned = text.endsWith("\r");
    LINE_END.lastIndex = from;
    for (let end = LINE_END.exec(text); end; end = LINE_END.exec(text)) {
      this.#pieces.push(text.slice(from, end.index));
      from = LINE_END.lastIndex;
      this.#line(this.#pieces.length === 1 ? this.#pieces[0] : this.#pieces.join(""), events);
      this.#pieces.length = 0;
    }
    if (from < text.length) this.#pieces.push(text.slice(from));
    return events;
  }

  #line(line, events) {
    if (line === "") return this.#end(events);
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "data") this.#data.push(value);
    else if (name === "event") this.#type = value;
    else if (name === "id" && !value.includes("\0")) this.#id = value;
  }

  #end(events) {
    const data = this.#data.join("\n");
    const event = { id: this.#id, type: this.#type || "message" };
    this.#id = null;
    this.#type = "";
    this.#data = [];
    if (data) events.push({ ...event, data });
  }
}
