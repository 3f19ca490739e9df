/**
 * Syntax colours. highlight.js finds the syntax; what it cannot do for a page that streams is done here:
 * - it runs in a worker, so that no code of a model, however it is made, keeps the page from drawing; what takes too
 *   long stays plain
 * - code that grows is looked at again whenever it is an eighth longer: the work stays linear in its length
 * - its tokens become elements in short slices, and only where they have changed; its HTML is never made
 */

import { h, hasSelection } from "../dom/elements.js";
import { yieldToBrowser } from "../dom/scheduling.js";
import { grammarsOf } from "./languages.js";

const MOST = 100_000; // characters: longer code is not coloured
const SLICE_MS = 6;
const LONGEST_MS = 3_000; // for one text, once its grammar is there
const LOADING_MS = 30_000;
const FIRST = 80; // characters that are looked at for the first time
const PAUSE_MS = 150;
const AGAIN_MS = 10_000; // after which a worker that could not load is tried again

/** Colours the parts of one `<code>`. */
export class Painter {
  #code;
  #grammars;
  #done = 0; // characters that were looked at
  #painted = new WeakMap(); // the colours of each part
  #busy = false;
  #began = 0;

  constructor(code, language) {
    this.#code = code;
    this.#grammars = grammarsOf(language);
  }

  /** The code is now so long; more may come. */
  grown(length) {
    if (!this.#grammars || this.#busy || length > MOST || length - this.#done < Math.max(FIRST, this.#done / 8)) return;
    if (performance.now() - this.#began < PAUSE_MS || hasSelection(this.#code)) return;
    this.#paint();
  }

  /** All of it is there. Resolves when its colours are. */
  async close() {
    if (!this.#grammars) return;
    while (this.#busy) await this.#busy;
    // Somebody who selects it keeps the selection.
    while (hasSelection(this.#code)) await new Promise((resolve) => onNextSelection(resolve));
    await this.#paint();
  }

  async #paint() {
    this.#began = performance.now();
    this.#busy = this.#look();
    await this.#busy;
    this.#busy = false;
  }

  async #look() {
    const text = [...this.#code.children].map((part) => part.textContent).join("");
    this.#done = text.length;
    const found = text.length <= MOST && (await worker.tokens(text, this.#grammars));
    if (!found) return;
    let began = performance.now();
    for (const _ of this.#painting(found)) {
      if (performance.now() - began < SLICE_MS) continue;
      await yieldToBrowser();
      began = performance.now();
    }
  }

  /** Draws one part after the other: its text stays what it is, and what has come behind the tokens stays plain. */
  *#painting({ kinds, tokens }) {
    let at = 0,
      left = tokens[0] ?? 0; // of the token at this place
    for (const part of [...this.#code.children]) {
      const text = part.textContent,
        drawn = [],
        marks = [];
      let from = 0;
      while (from < text.length && at < tokens.length) {
        const length = Math.min(left, text.length - from);
        const kind = kinds[tokens[at + 1]];
        const piece = text.slice(from, from + length);
        if (piece) drawn.push(kind ? h("span", { class: `c-${kind}` }, piece) : piece);
        marks.push(length, kind);
        from += length;
        left -= length;
        if (left === 0) left = tokens[(at += 2)] ?? 0;
      }
      if (!from) return;
      const mark = marks.join();
      if (this.#painted.get(part) !== mark && !hasSelection(part)) {
        part.replaceChildren(...drawn, text.slice(from));
        this.#painted.set(part, mark);
      }
      yield;
    }
  }
}

const onNextSelection = (resolve) => document.addEventListener("selectionchange", resolve, { once: true });

/** highlight.js in a worker, which is started for the first text and ended when a text takes it too long. */
class HighlightWorker {
  #worker = null;
  #waiting = new Map();
  #last = 0;
  #failed = Number.NEGATIVE_INFINITY;

  /** `{kinds, tokens}`: pairs of a length and the place of its kind in `kinds`; null where there are none. */
  tokens(text, grammars) {
    if (performance.now() - this.#failed < AGAIN_MS) return Promise.resolve(null);
    return new Promise((resolve) => this.#ask({ id: ++this.#last, text, grammars }, resolve));
  }

  #ask(question, resolve) {
    this.#waiting.set(question.id, { question, resolve, timer: setTimeout(() => this.#fail(), LOADING_MS) });
    this.#start().postMessage(question);
  }

  #start() {
    if (this.#worker) return this.#worker;
    const address = new URL("./highlight_worker.js", import.meta.url).href;
    policy ??= window.trustedTypes?.createPolicy("highlight-worker", { createScriptURL: () => address });
    this.#worker = new Worker(policy?.createScriptURL("") ?? address, { type: "module" });
    this.#worker.onmessage = ({ data }) => this.#hear(data);
    this.#worker.onerror = () => this.#fail();
    return this.#worker;
  }

  #hear({ id, begun, found }) {
    const waiting = this.#waiting.get(id);
    if (!waiting) return;
    clearTimeout(waiting.timer);
    if (begun) waiting.timer = setTimeout(() => this.#leave(id), LONGEST_MS);
    else this.#answer(id, found);
  }

  #answer(id, found) {
    const { resolve, timer } = this.#waiting.get(id);
    clearTimeout(timer);
    this.#waiting.delete(id);
    resolve(found);
  }

  /** This text takes too long: it stays plain, and another worker does the others. */
  #leave(id) {
    this.#end();
    this.#answer(id, null);
    const others = [...this.#waiting.values()];
    for (const { question, resolve, timer } of others) {
      clearTimeout(timer);
      this.#ask(question, resolve);
    }
  }

  /** The worker cannot be loaded, or broke. */
  #fail() {
    this.#end();
    this.#failed = performance.now();
    for (const id of [...this.#waiting.keys()]) this.#answer(id, null);
  }

  #end() {
    this.#worker?.terminate();
    this.#worker = null;
  }
}

let policy = null;
export const worker = new HighlightWorker();
