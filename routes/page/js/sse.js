/** Server-Sent Events out of text in any slicing, as the HTML standard reads them. */

export class EventReader {
  #rest = "";
  #event = { id: null, type: "message", data: [] };

  /** The events that are whole now: `{id, type, data}`, `data` as parsed JSON; comments are left out. */
  feed(text) {
    const events = [];
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (this.#event.data.length) {
          events.push({ ...this.#event, data: JSON.parse(this.#event.data.join("\n")) });
        }
        this.#event = { id: null, type: "message", data: [] };
        continue;
      }
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (name === "data") this.#event.data.push(value);
      else if (name === "event") this.#event.type = value;
      else if (name === "id") this.#event.id = value;
    }
    return events;
  }
}
