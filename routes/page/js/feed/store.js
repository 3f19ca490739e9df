/** The state of the page as observable keys. Each key has a single writer. */

import { guarded } from "../dom/errors.js";

export class Store {
  #values = {};
  #watchers = new Map();

  constructor(values = {}) {
    this.#values = { ...values };
  }

  get(key) {
    return this.#values[key];
  }

  /** Applies all changes before the first watcher is called; a watcher that throws does not affect the others. */
  set(changes) {
    Object.assign(this.#values, changes);
    for (const key of Object.keys(changes)) {
      for (const callback of [...(this.#watchers.get(key) ?? [])]) guarded(callback, this.#values[key]);
    }
  }

  /** Calls `callback(value)` at each change of the key, and at once if it has a value. Returns a function that stops it. */
  watch(key, callback) {
    const watchers = this.#watchers.get(key) ?? new Set();
    this.#watchers.set(key, watchers.add(callback));
    if (this.#values[key] !== undefined) guarded(callback, this.#values[key]);
    return () => watchers.delete(callback);
  }
}
