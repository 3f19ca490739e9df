/** Requests to the server that has served this page. The token is in sessionStorage, never in a URL. */

const KEY = "dragoman.token";

/** What the server refuses: `status`, `code`, and a message that says what to do next. */
export class Refused extends Error {
  constructor(status, code, message, more = {}) {
    super(message);
    Object.assign(this, { status, code, more });
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

const signedOut = new Set();

/** `tell` is called whenever the server says that it does not know us (any more). */
export function onSignedOut(tell) {
  signedOut.add(tell);
}

/** The Response of one request. Raises Refused; status 0, code `offline` where no answer came. */
export async function request(method, path, { body, headers = {}, signal } = {}) {
  const sent = { ...headers };
  if (token.get()) sent.authorization = `Bearer ${token.get()}`;
  if (body !== undefined) sent["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers: sent, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "offline", "The server does not answer. Is it running?");
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => null);
  const { code = "broken", message = `The server answered ${response.status}.`, ...more } = said?.error ?? {};
  if (response.status === 401) signedOut.forEach((tell) => tell(message));
  throw new Refused(response.status, code, message, more);
}

/** The JSON of an answer, null where it has none. */
async function json(method, path, options) {
  const response = await request(method, path, options);
  return response.status === 204 ? null : response.json();
}

export const get = (path, options) => json("GET", path, options);
export const post = (path, body = {}, options = {}) => json("POST", path, { ...options, body });
export const patch = (path, body) => json("PATCH", path, { body });
export const remove = (path) => json("DELETE", path);
