/** What this tab remembers over a reload: in sessionStorage, where the browser has one. */

const PREFIX = "dragoman.";

function withStorage(ask, storage = () => sessionStorage) {
  try {
    return ask(storage());
  } catch {
    return null; // switched off, or full: the page works without
  }
}

/** The JSON kept under `key`, or null. */
export function readStored(key) {
  return withStorage((storage) => JSON.parse(storage.getItem(PREFIX + key)));
}

/** `value` as JSON; null and "" forget. */
export function writeStored(key, value) {
  if (value === null || value === undefined || value === "")
    return withStorage((storage) => storage.removeItem(PREFIX + key));
  return withStorage((storage) => storage.setItem(PREFIX + key, JSON.stringify(value)));
}

const persistent = () => localStorage; // may be switched off, so that even its name raises

/** What this browser remembers of a person's taste, for all tabs, as text: nothing that was said or is secret. */
export const readPreference = (key) => withStorage((storage) => storage.getItem(PREFIX + key), persistent);

/** Remembers it; null and "" forget. */
export function writePreference(key, value) {
  withStorage(
    (storage) => (value ? storage.setItem(PREFIX + key, value) : storage.removeItem(PREFIX + key)),
    persistent,
  );
}

/** Forgets all that this tab remembers. */
export const clearStored = () => withStorage((storage) => storage.clear());
