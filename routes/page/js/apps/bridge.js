/** JSON-RPC 2.0 with an app in a frame: what it says may be anything, so it is read as JSON, checked and bounded. */

import { MessageRate } from "../text/message_rate.js";

const LONGEST = 1_000_000; // characters of a message
const LONG = 25_000; // characters that weigh as much as a message
const MOST_OPEN = 20; // requests of an app that have no answer yet
const [INVALID_REQUEST, UNKNOWN_METHOD, INVALID_PARAMS, REFUSED] = [-32600, -32601, -32602, -32000];

/** An error that an app gets as the answer to its request. */
export class RpcError extends Error {
  constructor(message, code = REFUSED) {
    super(message);
    this.code = code;
  }
}

export const invalid = (message) => new RpcError(message, INVALID_PARAMS);
export const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isId = (id) => Number.isSafeInteger(id) || (typeof id === "string" && id.length <= 100);

export class Bridge {
  #received = new MessageRate();
  #open = new Map(); // requests of the app by id: what aborts them
  #answered = null; // what takes the answer to our own request

  /** `methods`: by name, `(params, signal) => result`; `flooded()` is called once an app says more than can be read. */
  constructor(send, methods, flooded) {
    Object.assign(this, { send, methods, flooded });
  }

  /** Takes what the app says. Returns what is no message of this protocol. */
  hear(data) {
    const [message, characters] = plain(data);
    if (this.#received.isOver(1 + characters / LONG)) return this.flooded();
    if (message?.jsonrpc !== "2.0") return message;
    const { id, method, params = {} } = message;
    if (method === undefined) return void this.#answered?.();
    const isNotice = id === undefined;
    const isWhole = typeof method === "string" && isObject(params) && (isNotice || (isId(id) && !this.#open.has(id)));
    if (isWhole && method === "notifications/cancelled") return this.#open.get(params.requestId)?.abort();
    const handler = isWhole && Object.hasOwn(this.methods, method) && this.methods[method];
    if (isNotice) return void (handler && method.includes("notifications/") && handler(params));
    return void this.#serve(id, async (signal) => {
      if (!isWhole) throw new RpcError("This is no request of JSON-RPC 2.0 with an id of its own.", INVALID_REQUEST);
      if (!handler) throw new RpcError(`There is no method ${method.slice(0, 100)}.`, UNKNOWN_METHOD);
      if (this.#open.size > MOST_OPEN) throw new RpcError(`${MOST_OPEN} requests wait for their answers.`);
      return handler(params, signal);
    });
  }

  notify(method, params) {
    this.send({ jsonrpc: "2.0", method, params });
  }

  /** Sends the last request. Resolves when it is answered, at the latest after `wait_ms`. */
  ask(method, wait_ms) {
    this.send({ jsonrpc: "2.0", id: 0, method, params: {} });
    return new Promise((resolve) => setTimeout((this.#answered = resolve), wait_ms));
  }

  /** What the app has asked for is not answered any more. */
  abort() {
    for (const abort of this.#open.values()) abort.abort();
    this.#open.clear();
  }

  async #serve(id, serve) {
    const abort = new AbortController();
    if (isId(id) && !this.#open.has(id)) this.#open.set(id, abort);
    const answer = { jsonrpc: "2.0", id: isId(id) ? id : null };
    try {
      answer.result = (await serve(abort.signal)) ?? {};
    } catch ({ code, message }) {
      answer.error = { code: Number.isInteger(code) ? code : REFUSED, message };
    }
    if (!abort.signal.aborted) this.send(answer);
    if (this.#open.get(id) === abort) this.#open.delete(id);
  }
}

/** A message as JSON has it, and its length: neither maps nor buffers, nor anything that refers to itself. */
function plain(data) {
  try {
    const text = JSON.stringify(data) ?? "";
    return [text.length > LONGEST ? { jsonrpc: "2.0", id: data.id, method: null } : JSON.parse(text), text.length];
  } catch {
    return [null, 0];
  }
}
