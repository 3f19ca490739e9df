/** Values that this tab keeps across reloads (sessionStorage) and preferences of the browser (localStorage). */

const PREFIX = "dragoman.";

/** What `ask(storage)` returns; null where the browser keeps nothing. */
export function withStorage(ask, storage = () => sessionStorage) {
  try {
    return ask(storage());
  } catch {
    return null; // disabled, or full: the page works without it
  }
}

/** The JSON stored under `key`, or null. */
export function readStored(key) {
  return withStorage((storage) => JSON.parse(storage.getItem(PREFIX + key)));
}

/** Stores `value` as JSON; null and "" remove it. */
export function writeStored(key, value) {
  if (value === null || value === undefined || value === "")
    return withStorage((storage) => storage.removeItem(PREFIX + key));
  return withStorage((storage) => storage.setItem(PREFIX + key, JSON.stringify(value)));
}

const persistent = () => localStorage; // a function, because even naming it raises where it is disabled

/** A preference of this browser, for all tabs, as text: never conversation content or secrets. */
export const readPreference = (key) => withStorage((storage) => storage.getItem(PREFIX + key), persistent);

/** Stores a preference; null and "" remove it. */
export function writePreference(key, value) {
  withStorage(
    (storage) => (value ? storage.setItem(PREFIX + key, value) : storage.removeItem(PREFIX + key)),
    persistent,
  );
}

/** Calls `changed(value)` when another tab of this browser changes a preference. */
export const onPreference = (key, changed) =>
  addEventListener("storage", (event) => {
    if (event.key === PREFIX + key || event.key === null) changed(readPreference(key));
  });

/** Removes everything that this tab has stored. */
export const clearStored = () => withStorage((storage) => storage.clear());
