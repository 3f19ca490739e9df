/** What becomes of a message: a run of its own, a word to the run under way, or one that waits behind it. */

import { post } from "../feed/api.js";
import { messageOf, fetchAttachments, wordsOf } from "./attachments.js";

export class Sender {
  #page;
  #last = null; // what was tried last, and the key that keeps it from being begun twice
  #opening = null; // the message that begins a session: its view, and the session once there is one

  constructor(page) {
    this.#page = page;
  }

  /**
   * Sends `text` and `files`; `steer` into the run under way, and else with these fields of POST /chat, those that are
   * not empty. Raises Refused, and then nothing of it is shown any more.
   */
  async send(text, files, { steer = false, ...fields } = {}) {
    const run = steer ? this.#page.store.get("working") : null;
    if (run && (await this.#steer(run, text, files))) return;
    await this.#chat(text, files, fields);
  }

  /** The same as an earlier turn. Raises Refused. */
  async again({ message, session }, options) {
    const files = await fetchAttachments(message, session);
    await this.send(message.text, files, options);
  }

  /** Stops the run that this session is busy with, and only that. Raises Refused. */
  async stop() {
    const run = this.#page.store.get("working");
    if (run) await post(`/runs/${run}/cancel`);
  }

  /** False if the run has ended meanwhile. */
  async #steer(run, text, files) {
    const words = wordsOf(text, files);
    const takeBack = this.#page.conversation.run(run).steer(words);
    this.#page.conversation.follower.toEnd();
    try {
      await post(`/runs/${run}/messages`, { message: messageOf(text, files) });
      return true;
    } catch (error) {
      takeBack();
      if (error.status === 409) return false;
      throw error;
    }
  }

  async #chat(text, files, fields) {
    const { store, conversation } = this.#page;
    const names = files.filter(({ part }) => part).map(({ name }) => name);
    const view = conversation.sending({ text: wordsOf(text, files), files: names });
    const session = store.get("session") ?? (await this.#beginning());
    const sent = this.#post(view, session, text, files, fields);
    if (!session) this.#opening = { view, session: sent.catch(() => null) };
    await sent;
  }

  /** The session that a message before this one begins, which may be on its way: both belong together. */
  #beginning() {
    return this.#opening?.view.element.isConnected ? this.#opening.session : null;
  }

  async #post(view, session, text, files, fields) {
    const { store, conversation } = this.#page;
    const body = { message: messageOf(text, files), when_busy: "queue" };
    const more = { session, model: store.get("model"), ...fields };
    for (const [name, value] of Object.entries(more)) if (value) body[name] = value;
    try {
      const headers = { prefer: "respond-async", "idempotency-key": this.#key(body) };
      const begun = await post("/chat", body, { headers });
      this.#last = null;
      conversation.begun(view, begun);
      return begun.session;
    } catch (error) {
      if (conversation.unsent(view, error)) throw error;
      this.#last = null;
      return null;
    }
  }

  /** Where no answer came, the server may have begun it all the same: the same words again find that run. */
  #key(body) {
    const said = JSON.stringify(body);
    if (this.#last?.said !== said) this.#last = { said, key: randomKey() };
    return this.#last.key;
  }
}

function randomKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
