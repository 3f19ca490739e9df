/** The terminal of a running command: what is typed into it, in order, and its size. */

import { post } from "./api.js";

const MOST = 1_000; // characters that the server takes at once
const MERGED_MS = 15; // keys of one moment go together

export class CallTerminal {
  onSent = () => undefined; // called after something was typed
  onProblem = () => undefined; // with the error, if it was not
  #path;
  #typed = "";
  #sending = null;
  #size = "";

  constructor(run, call) {
    this.#path = `/runs/${encodeURIComponent(run)}/calls/${encodeURIComponent(call)}`;
  }

  /** Types a line or keys by their names. Raises Refused. */
  async send(input) {
    await this.#sending;
    await post(`${this.#path}/input`, input);
    this.onSent();
  }

  /** Types what a terminal sends for keys, in the order of the calls. */
  type(data) {
    this.#typed += data;
    this.#sending ??= this.#drain();
  }

  async #drain() {
    try {
      while (this.#typed) {
        await new Promise((resolve) => setTimeout(resolve, MERGED_MS));
        const text = this.#typed.slice(0, MOST);
        this.#typed = this.#typed.slice(text.length);
        await post(`${this.#path}/input`, { text });
        this.onSent();
      }
    } catch (error) {
      this.#typed = ""; // what follows a lost key would be another command
      this.onProblem(error);
    } finally {
      this.#sending = null;
    }
  }

  /** Gives the terminal the size of the window in which it is seen. */
  async resize(columns, rows) {
    const size = `${columns}x${rows}`;
    if (this.#size === size) return;
    this.#size = size;
    try {
      await post(`${this.#path}/terminal`, { columns, rows });
    } catch (error) {
      if (!error.status) throw error; // it has ended, or has no terminal: it stays as it is
    }
  }
}
