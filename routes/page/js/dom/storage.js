/** What this tab remembers over a reload: in sessionStorage, where the browser has one. */

const PREFIX = "dragoman.";

function asked(ask, storage = () => sessionStorage) {
  try {
    return ask(storage());
  } catch {
    return null; // switched off, or full: the page works without
  }
}

/** The JSON kept under `key`, or null. */
export function kept(key) {
  return asked((storage) => JSON.parse(storage.getItem(PREFIX + key)));
}

/** `value` as JSON; null and "" forget. */
export function keep(key, value) {
  if (value === null || value === undefined || value === "")
    return asked((storage) => storage.removeItem(PREFIX + key));
  return asked((storage) => storage.setItem(PREFIX + key, JSON.stringify(value)));
}

const lasting = () => localStorage; // may be switched off, so that even its name raises

/** What this browser remembers of a person's taste, for all tabs, as text: nothing that was said or is secret. */
export const preferred = (key) => asked((storage) => storage.getItem(PREFIX + key), lasting);

/** Remembers it; null and "" forget. */
export function prefer(key, value) {
  asked((storage) => (value ? storage.setItem(PREFIX + key, value) : storage.removeItem(PREFIX + key)), lasting);
}

/** Forgets all that this tab remembers. */
export const forgetAll = () => asked((storage) => storage.clear());
