/** Sends messages: as a run, into the active run, or into the queue behind it. */

import { patch, post } from "../feed/api.js";
import { changedValues, fieldsOf } from "../panels/conversation/options.js";
import { messageOf, fetchAttachments, wordsOf } from "./attachments.js";

const time_zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

export class Sender {
  #page;
  #last = null; // the last request and its idempotency key
  #opening = null; // the message that starts a session: its view, and the session once known

  constructor(page) {
    this.#page = page;
  }

  /**
   * Sends `text` and `files`; `steer`: into the active run, else with the non-empty fields of POST /chat.
   * Raises Refused; then nothing of the message is shown.
   */
  async send(text, files, { steer = false, session = this.#page.store.get("session"), ...fields } = {}) {
    const run = steer ? this.#page.store.get("working") : null;
    if (run && (await this.#steer(run, text, files))) return;
    await this.#chat(session, text, files, fields);
  }

  /** Sends the message of an earlier turn again. Raises Refused. */
  async resend({ message, session }, options) {
    const files = await fetchAttachments(message, session);
    await this.send(message.text, files, { ...options, session });
  }

  /** Cancels the active run of this session. Raises Refused. */
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

  /** `open`: the session when it was sent; what is open after a wait may be another. */
  async #chat(open, text, files, fields) {
    const names = files.map(({ name }) => name);
    const view = await this.#page.conversation.addPending({ text: wordsOf(text, files), files: names }, open);
    const session = open ?? (await this.#beginning());
    const sent = this.#post(view, session, text, files, fields);
    if (!session) this.#opening = { view, session: sent.catch(() => null) };
    await sent;
  }

  /** The session that an earlier message is just starting: both belong to it. */
  #beginning() {
    return this.#opening?.view.element.isConnected ? this.#opening.session : null;
  }

  async #post(view, session, text, files, fields) {
    const { store, conversation } = this.#page;
    const body = { message: messageOf(text, files), when_busy: "queue" };
    const begins = session ? null : store.get("options");
    const modes = session ? {} : store.get("modes");
    const more = {
      session,
      model: store.get("model"),
      channel: "page",
      ...modes,
      ...(begins && fieldsOf(begins)),
      ...fields,
      time_zone,
    };
    for (const [name, value] of Object.entries(more)) if (value || value === 0) body[name] = value;
    try {
      const { key, terminal } = this.#once(body);
      body.terminal = terminal;
      const headers = { prefer: "respond-async", "idempotency-key": key };
      const begun = await post("/chat", body, { headers });
      if (changedValues(begins ?? undefined)) {
        await patch(`/sessions/${begun.session}`, { profile: begins.profile, options: begins.options }); // before the next
      }
      this.#last = null;
      conversation.confirm(view, begun);
      return begun.session;
    } catch (error) {
      if (conversation.fail(view, error)) throw error;
      this.#last = null;
      return null;
    }
  }

  /** After a lost response the server may have started the run: the same request, in a window of any size, finds it by its key. */
  #once(body) {
    const said = JSON.stringify(body);
    if (this.#last?.said !== said) {
      this.#last = { said, key: randomKey(), terminal: this.#page.conversation.windowSize() };
    }
    return this.#last;
  }
}

export function randomKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
