/** The conversation in the middle: the runs of one session, those of the log first, then as the feed tells them. */

import { get } from "./api.js";
import { fill, h, say } from "./dom.js";
import { RunView } from "./run_view.js";

const NEAR = 120; // pixels from the end at which the view follows what is new

export class Conversation {
  #page;
  #runs = new Map();
  #list;
  #opening = 0;

  constructor(page) {
    this.#page = page;
    this.element = page.at("conversation");
    this.#list = h("div", { class: "runs" });
    this.element.append(this.#list);
    this.element.addEventListener("scroll", () => (this.following = this.#nearEnd()), { passive: true });
    new ResizeObserver(() => this.follow()).observe(this.#list);
    this.following = true;
  }

  /** Shows a session, or (null) the beginning of a new one. Errors are shown in the conversation. */
  async open(session) {
    const opening = ++this.#opening;
    this.#runs.clear();
    fill(this.#list);
    if (location.hash.slice(1) !== (session ?? "")) history.pushState(null, "", session ? `#${session}` : location.pathname);
    this.#page.store.set({ session });
    this.following = true;
    if (session === null) return this.#page.feed.follow(null, null);
    try {
      const log = await get(`/sessions/${encodeURIComponent(session)}/log`);
      if (opening !== this.#opening) return;
      this.#page.store.set({ title: log.title, earlier: log.earlier, spent: log.usage });
      for (const run of log.runs) this.#restore(run);
      this.#page.feed.follow(session, log.cursor);
    } catch (error) {
      if (opening !== this.#opening) return;
      fill(this.#list, h("p", { class: "problem", role: "alert" }, error.message));
      this.#page.feed.follow(null, null);
    }
  }

  /** One event of the feed. */
  add({ type, run, seq, data }) {
    if (type === "run.asked") return void this.#view(data);
    const view = this.#runs.get(run);
    if (view && seq > view.seq) view.add({ ...data, seq });
  }

  /** The view of a run, made when it is first heard of. */
  #view(asked) {
    let view = this.#runs.get(asked.run);
    if (!view) {
      view = new RunView(asked, this.#page);
      this.#runs.set(asked.run, view);
      this.#list.append(view.element);
    }
    return view;
  }

  #restore({ events, ...asked }) {
    const view = this.#view(asked);
    view.restoring = true;
    for (const event of events) view.add(event);
    view.restoring = false;
  }

  run(id) {
    return this.#runs.get(id);
  }

  get latest() {
    return [...this.#runs.values()].at(-1);
  }

  #nearEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.element;
    return scrollHeight - scrollTop - clientHeight < NEAR;
  }

  /** To the end, if that is where the reader was. */
  follow() {
    if (this.following) this.element.scrollTop = this.element.scrollHeight;
  }
}
