/**
 * Requests to the dragoman server. The token is kept in sessionStorage, never in a URL; of a sign-in that lasts only
 * the key is here, which is worth nothing without the cookie.
 */

import { parseJSON } from "../text/json.js";
import { guarded } from "../dom/errors.js";
import { readPreference, withStorage, writePreference } from "../dom/storage.js";
import { t } from "../dom/texts.js";

const KEY = "dragoman.token";
const READ_TIMEOUT_MS = 30_000; // for an answer to a question
const WRITE_TIMEOUT_MS = 180_000; // for the rest: files are long, and servers that are tried out slow

/** What the server refuses: `status`, `code`, and a message that says what to do next. */
export class Refused extends Error {
  constructor(status, code, message, more = {}) {
    super(message);
    Object.assign(this, { status, code, more });
  }
}

let fallbackToken = null; // where a browser keeps nothing, the token lasts as long as the page

export const token = {
  get: () => fallbackToken ?? withStorage((storage) => storage.getItem(KEY)),
  set: (value) => {
    fallbackToken = value;
    withStorage((storage) => storage.setItem(KEY, value));
  },
  forget: () => {
    fallbackToken = null;
    withStorage((storage) => storage.removeItem(KEY));
  },
};

export const SIGN_IN = "sign-in"; // the preference with the key of a sign-in that lasts
export const LOGOUT = "sign-out-at"; // the preference with the page of the provider that ends its session
const SIGN_IN_HEADER = "x-dragoman-sign-in";

export const keptSignIn = {
  get: () => readPreference(SIGN_IN),
  set: (key) => writePreference(SIGN_IN, key),
  header: (key) => ({ [SIGN_IN_HEADER]: key }),
};

const signedOut = new Set();

/** `callback(message)` is called when the server rejects the token. */
export function onSignedOut(callback) {
  signedOut.add(callback);
}

/** The server has rejected the token. */
export function signalSignedOut(message) {
  signedOut.forEach((callback) => guarded(callback, message));
}

/**
 * The Response of one request, with its body still to be read. Raises Refused; status 0, code `offline` where no answer
 * arrived, `timeout` where none began within `wait_ms`; and AbortError when `signal` is aborted.
 */
export async function request(method, path, { body, file, headers = {}, signal, wait_ms = timeoutOf(method) } = {}) {
  const late = new AbortController();
  const sent = body === undefined ? undefined : JSON.stringify(body);
  const all = requestHeaders(headers, sent);
  const timer = setTimeout(() => late.abort(), wait_ms);
  try {
    const signals = signal ? AbortSignal.any([signal, late.signal]) : late.signal;
    const response = await fetch(path, { method, headers: all, signal: signals, body: file ?? sent });
    if (response.ok) return response;
    throw await refusal(response);
  } catch (error) {
    throw requestError(error, signal, late.signal, wait_ms);
  } finally {
    clearTimeout(timer);
  }
}

const timeoutOf = (method) => (method === "GET" ? READ_TIMEOUT_MS : WRITE_TIMEOUT_MS);

/** The headers that say who asks. Raises Refused for a token that no header can have. */
export function credentials() {
  const secret = token.get();
  if (secret && !/^[\x21-\x7e]+$/.test(secret)) {
    const message = t("sign_in.invalid");
    signalSignedOut(message);
    throw new Refused(401, "unauthenticated", message);
  }
  const key = keptSignIn.get();
  if (secret) return { authorization: `Bearer ${secret}` };
  return key ? keptSignIn.header(key) : {};
}

function requestHeaders(headers, sent) {
  const all = headers.authorization ? { ...headers } : { ...credentials(), ...headers };
  if (sent !== undefined) all["content-type"] = "application/json";
  return all;
}

async function refusal(response) {
  const said = await response.json().catch(() => null);
  const unknown = t("request.status", { status: String(response.status) });
  const { code = "broken", message = unknown, ...more } = said?.error ?? {};
  if (response.status === 401) signalSignedOut(message);
  return new Refused(response.status, code, message, more);
}

/** What a failed request is called: fetch has one name for all that happens on the way. */
function requestError(error, signal, late, wait_ms) {
  if (error instanceof Refused) return error;
  if (signal?.aborted) return new DOMException("The request was aborted.", "AbortError");
  if (error instanceof SyntaxError) return new Refused(0, "broken", t("request.broken"));
  if (late.aborted) return new Refused(0, "timeout", t("request.timeout", { seconds: wait_ms / 1000 }));
  return new Refused(0, "offline", t("request.offline"));
}

/** The JSON of an answer, null where it has none. */
async function json(method, path, { signal, wait_ms = timeoutOf(method), ...options } = {}) {
  const late = AbortSignal.timeout(wait_ms); // the body has to be there in time as well
  const signals = signal ? AbortSignal.any([signal, late]) : late;
  try {
    const response = await request(method, path, { ...options, signal: signals, wait_ms: 2 * wait_ms });
    return response.status === 204 ? null : parseJSON(await response.text());
  } catch (error) {
    throw requestError(error, signal, late, wait_ms);
  }
}

export const get = (path, options) => json("GET", path, options);
export const post = (path, body = {}, options = {}) => json("POST", path, { ...options, body });
export const patch = (path, body) => json("PATCH", path, { body });
export const remove = (path) => json("DELETE", path);
