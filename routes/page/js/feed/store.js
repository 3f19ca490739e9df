/** What the page knows, and who is told when a part of it changes. One writer for each key is the rule. */

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

  /** All changes are there before the first watcher is told; one that breaks does not keep it from the others. */
  set(changes) {
    Object.assign(this.#values, changes);
    for (const key of Object.keys(changes)) {
      for (const tell of [...(this.#watchers.get(key) ?? [])]) guarded(tell, this.#values[key]);
    }
  }

  /** `tell(value)` at each change of the key, and at once if it has a value. Returns how to stop that. */
  watch(key, tell) {
    const watchers = this.#watchers.get(key) ?? new Set();
    this.#watchers.set(key, watchers.add(tell));
    if (this.#values[key] !== undefined) guarded(tell, this.#values[key]);
    return () => watchers.delete(tell);
  }
}
