/** The conversation: the runs of one session, restored from its log and then updated by the feed. */

import { announce, button, fill, h } from "../dom/elements.js";
import { ScrollFollower } from "./scroll_follower.js";
import { writeStored, readStored } from "../dom/storage.js";
import { moveChoice } from "../panels/models.js";
import { fetchLog, inOrder, replay } from "./run_log.js";
import { windowSize } from "../terminal/window_size.js";
import { welcome } from "./welcome.js";
import { t } from "../dom/texts.js";

const PAGE = 20, // runs that are loaded at a time
  MOST = 100; // on the way to one that is wanted
const OF_APP_DONE = '.run[data-source="app"]:has([data-state="done"])';

export class Conversation {
  #page;
  #RunView = null; // its code, which comes after the first screen
  #runs = new Map();
  #pending = []; // views of messages that the server has not confirmed yet
  #list = h("div", { class: "runs" });
  #earlier = button(t("conversation.earlier"), () => this.#showEarlier(), { class: "earlier", hidden: true });
  #head = h("div", { class: "conversation-head" });
  #opening = 0;
  #followed = 0; // addresses
  #failed = false;
  #isLive = false; // the feed follows this session, and its log has been restored

  constructor(page) {
    this.#page = page;
    this.element = page.at("conversation");
    this.element.append(this.#head, h("div", { class: "earlier-row" }, this.#earlier), this.#list);
    this.follower = new ScrollFollower(this.element, this.#list);
    page.store.watch("branches", () => this.#markBranches());
    page.store.watch("earlier", (earlier) => (this.#earlier.hidden = !earlier));
    const isMissing = ({ state, why }) => state === "refused" && why?.code === "not_found";
    page.store.watch("connection", (now) => isMissing(now) && this.#sessionMissing(now.why));
    addEventListener("popstate", () => this.openAddress());
    addEventListener("pagehide", () => this.#savePosition());
    document.addEventListener("visibilitychange", () => document.hidden && this.#savePosition());
  }

  /** The columns and rows in which cards show what commands print. */
  windowSize() {
    return windowSize(this.#list);
  }

  /** Opens a session, or (null) the start of a new one. Errors are shown in the conversation. */
  async open(session, { moved = false } = {}) {
    const { store } = this.#page;
    if (session && session === store.get("session") && this.#runs.size && !this.#failed) return;
    const opening = ++this.#opening;
    this.#isLive = false;
    this.#savePosition();
    this.#clear();
    if (!moved) updateAddress(session);
    const nothing = {
      branches: [],
      copies: {},
      title: null,
      modes: {},
      earlier: false,
      spent: null,
      context: null,
      working: null,
      turns: 0,
    };
    store.set({ session, ...nothing });
    if (session === null) {
      fill(this.#head, welcome(this.#page));
      return this.#listen(null, null);
    }
    fill(this.#head, h("p", { class: "opening faint" }, t("conversation.loading")));
    try {
      const [log] = await Promise.all([fetchLog(session, { runs: PAGE }), this.prepare()]);
      if (opening !== this.#opening) return;
      fill(this.#head);
      const { title, modes, branches, copies, earlier, usage } = log;
      store.set({ title, modes, branches, copies, earlier, spent: usage ?? null });
      await this.#restore(log, () => opening === this.#opening);
    } catch (error) {
      if (opening === this.#opening) this.#showFailure(session, error);
    }
  }

  /** Handles an event of the feed. */
  add({ type, run, seq, data }) {
    if (!this.#isLive) return;
    if (type === "run.asked") return void (data.session === this.#page.store.get("session") && this.#addRun(data));
    const view = this.#runs.get(run);
    if (!view || seq <= view.seq) return;
    view.add({ ...data, seq });
    this.#dropOfApp(view);
    this.follower.contentAdded();
    if (view.ended) this.#updateWorking();
  }

  /** Loads what shows turns. Raises Error. */
  async prepare() {
    const parts = [import("./run_view.js"), import("../documents/documents.js")];
    try {
      const [{ RunView }, { Documents }] = await Promise.all(parts);
      this.#RunView = RunView;
      this.#page.documents ??= new Documents(this.#page);
    } catch (cause) {
      throw new Error(t("conversation.not_loaded"), { cause });
    }
  }

  /** Shows a message before the server confirms it; `confirm` or `fail` follows. */
  async addPending(message, session) {
    await this.prepare();
    const mine = { run: null, session, message, state: "sending", created: Date.now() / 1000, here: true };
    const view = new this.#RunView(mine, this.#page);
    if (session !== this.#page.store.get("session")) return view; // its writer looks elsewhere
    this.#pending.push(view);
    fill(this.#head);
    this.#list.append(view.element);
    this.follower.reset();
    return view;
  }

  /** A call of an app that went well is no turn: its result is the app's, which may make thousands. */
  #dropOfApp(view) {
    if (!view.ended || !view.element.matches(OF_APP_DONE)) return;
    view.leave();
    view.element.remove();
    this.#runs.delete(view.asked.run);
  }

  /** The server has accepted the message of `view`. A session that starts with it becomes the open one. */
  confirm(view, { run, session, state }) {
    this.#pending = this.#pending.filter((one) => one !== view);
    if (!view.element.isConnected) return; // the user has switched; the log or the feed has the rest
    if (this.#failed) return void this.open(session, { moved: true });
    const { store } = this.#page;
    const known = this.#runs.get(run);
    const asked = { ...view.asked, run, session, state };
    const others = view.asked.run && view.asked.run !== run; // the same text was sent elsewhere at the same time
    if (others) this.#addRun(asked);
    else if (known && known !== view) return view.element.remove();
    else if (!known) this.#adopt(view, asked);
    if (!store.get("session")) {
      updateAddress(session, "replaceState"); // Back leads to the conversation before, not to an empty one
      moveChoice(session);
      store.set({ session, title: view.asked.message.text.split("\n", 1)[0].slice(0, 80) || null });
      if (store.get("modes").workspace === "new") this.#showModes(session);
      this.#listen(session, `${run}:0`);
      if (view.asked.message.files?.length) this.#reread(view, session);
    }
    this.#updateWorking();
  }

  /** The server names a folder that it makes. */
  async #showModes(session) {
    const { modes } = await fetchLog(session, { runs: 1 });
    if (this.#page.store.get("session") === session) this.#page.store.set({ modes });
  }

  /** The feed omits the attachments of a message that this page has sent: fetches them. */
  async #reread(view, session) {
    const { runs } = await fetchLog(session, { runs: 1 });
    const { events, ...asked } = runs.find(({ run }) => run === view.asked.run) ?? {};
    if (asked.run) view.begin(asked);
  }

  /** The request failed. Returns false if the feed shows that the server has accepted it after all. */
  fail(view, { status }) {
    if (view.asked.run) return status !== 0;
    this.#pending = this.#pending.filter((one) => one !== view);
    view.element.remove();
    if (!this.#runs.size && !this.#page.store.get("session")) fill(this.#head, welcome(this.#page));
    return true;
  }

  /** A view of a run that is not part of this list. */
  newView(asked, page) {
    return new this.#RunView(asked, page);
  }

  run(id) {
    return this.#runs.get(id);
  }

  /** The view of a run; earlier turns are loaded until it is there. Undefined where it is not. */
  async turn(id) {
    const { store } = this.#page;
    while (!this.#runs.has(id) && store.get("earlier")) {
      const [first] = this.#runs.keys();
      await this.#showEarlier(MOST);
      if (this.#runs.keys().next().value === first) break; // it failed, which is shown
    }
    return this.#runs.get(id);
  }

  /** The views of the turns that are loaded, in order. */
  get turns() {
    return [...this.#runs.values()];
  }

  get latest() {
    return [...this.#runs.values()].at(-1);
  }

  /** The active run of this session; later ones are queued. */
  get current() {
    return [...this.#runs.values()].find((view) => !view.ended && !view.asked.ended);
  }

  #listen(session, cursor) {
    this.#isLive = true;
    this.#page.feed.follow(session, cursor);
  }

  #clear() {
    for (const view of this.#runs.values()) view.leave();
    this.#runs = new Map();
    this.#pending = [];
    this.#failed = false;
    fill(this.#list);
    fill(this.#head);
    this.follower.reset();
  }

  #updateWorking() {
    this.#page.store.set({ working: this.current?.asked.run ?? null, turns: this.#runs.size });
  }

  /** Adds a run: it takes over the view of a message sent from here, or gets a new one. */
  #addRun(asked) {
    const words = asked.message?.text ?? null;
    const known = this.#runs.get(asked.run);
    const mine = this.#pending.find((view) => view.asked.message?.text === words);
    if (known) known.begin(asked);
    else if (mine) this.#adopt(mine, asked);
    else this.#list.append(this.#view(asked).element);
    this.#place(this.#runs.get(asked.run));
    fill(this.#head);
    if (!known) this.follower.contentAdded();
    this.#updateWorking();
    this.#markBranches();
    this.#page.comparison?.hideOwn(); // it shows this turn
  }

  /** Shows the switch at turns with other branches; most conversations have none. */
  async #markBranches() {
    const partings = this.#page.store.get("branches") ?? [];
    if (!partings.length && !this.#list.querySelector(".branch-switch")) return;
    const { mark } = await import("./branching.js");
    mark(this.#page, [...this.#runs.values()], this.#page.store.get("branches"));
  }

  /** Keeps the server's order of runs: one sent from here may come after others. */
  #place(view) {
    const views = inOrder([...this.#runs.values()], view);
    this.#runs = new Map(views.map((one) => [one.asked.run, one]));
    const before = views[views.indexOf(view) - 1]?.element ?? null;
    if (view.element.previousElementSibling === before) return;
    if (before) before.after(view.element);
    else this.#list.prepend(view.element);
  }

  #adopt(view, asked) {
    this.#pending = this.#pending.filter((one) => one !== view);
    view.begin(asked);
    this.#runs.set(asked.run, view);
  }

  #view(asked, known) {
    known?.begin(asked);
    const view = known ?? new this.#RunView(asked, this.#page);
    this.#runs.set(asked.run, view);
    return view;
  }

  /** Restores the last runs first, because the reader looks at the end; the feed continues after the log. */
  async #restore(log, wanted) {
    const live = log.cursor?.split(":", 1)[0];
    const mine = this.#runs; // sent while the log was loading
    this.#runs = new Map();
    const views = log.runs.map(({ events, ...asked }) => this.#view(asked, mine.get(asked.run)));
    for (const [id, view] of mine) if (!this.#runs.has(id)) this.#runs.set(id, view);
    this.#list.prepend(...views.map((view) => view.element));
    this.#page.store.set({ turns: this.#runs.size });
    await this.#markBranches();
    await this.follower.holdPosition(async () => {
      for (let at = views.length - 1; at >= 0; at--) {
        if (!(await replay(views[at], log.runs[at].events, wanted))) return;
        this.#dropOfApp(views[at]);
        if (log.runs[at].run !== live) continue;
        this.#listen(log.session, log.cursor);
        this.#updateWorking();
      }
    }, this.#savedPosition(log.session));
    if (wanted() && !live) this.#listen(log.session, log.cursor);
  }

  async #showEarlier(most = PAGE) {
    const { store } = this.#page;
    const opening = this.#opening;
    const [first] = this.#runs.keys();
    this.#earlier.disabled = true;
    try {
      const log = await fetchLog(store.get("session"), { before: first, runs: most });
      if (opening !== this.#opening) return;
      const runs = this.#runs;
      this.#runs = new Map();
      const views = log.runs.map(({ events, ...asked }) => this.#view(asked));
      for (const [id, view] of runs) this.#runs.set(id, view);
      this.follower.following = false;
      await this.follower.holdPosition(async () => {
        this.#list.prepend(...views.map((view) => view.element));
        await this.#markBranches();
        for (let at = views.length - 1; at >= 0; at--) {
          if (!(await replay(views[at], log.runs[at].events, () => opening === this.#opening))) return;
        }
      });
      if (opening !== this.#opening) return;
      const focused = document.activeElement === this.#earlier;
      store.set({ earlier: log.earlier });
      if (focused && !log.earlier) this.element.focus({ preventScroll: true });
      announce(t("conversation.earlier.shown", { count: views.length }));
    } catch (error) {
      announce(error.message, { urgent: true });
      this.#earlier.textContent = t("conversation.earlier.failed", { reason: error.message });
    } finally {
      this.#earlier.disabled = false;
    }
  }

  /** Opens the session that the address names, or a new one; at an event of a run, if it names one. */
  async openAddress() {
    const [, session = null, run, seq] = /^#(ses_\w+)(?:\/([^/]*)(?:\/(.*))?)?$/.exec(location.hash) ?? [];
    if (location.hash && !session && this.#opening) return;
    const followed = ++this.#followed;
    const isCurrent = () => followed === this.#followed && this.#page.store.get("session") === session;
    await this.open(session, { moved: true });
    if (run === undefined || !isCurrent()) return;
    const [, call] = /^call=(.+)$/.exec(seq ?? "") ?? [];
    const detail = { run, call, notified: true };
    if (call) return this.#page.at("approvals").dispatchEvent(new CustomEvent("show", { detail }));
    const { Replay } = await import("./replay/replay.js");
    await Replay.openLinked(this.#page, { run, seq, isCurrent });
  }

  /** The feed may still be that of the conversation before. */
  #sessionMissing(why) {
    const session = this.#isLive && this.#page.store.get("session");
    if (session) this.#showFailure(session, why);
  }

  #showFailure(session, error) {
    const { store } = this.#page;
    this.#clear();
    store.set({ earlier: false, working: null });
    const missing = error.status === 404;
    this.#failed = !missing;
    if (missing) this.#detachSession(session);
    const words = missing ? t("conversation.missing") : error.message;
    const begin = () => this.open(null);
    const again = () => this.open(session, { moved: true });
    const [label, next] = missing ? [t("conversation.begin"), begin] : [t("run.again"), again];
    fill(this.#head, h("div", { class: "session-error", role: "alert" }, h("p", {}, words), button(label, next)));
    this.#listen(null, null);
  }

  /** Continues as a new conversation, with the draft of the missing one. */
  #detachSession(session) {
    writeStored("draft.new", readStored(`draft.${session}`) ?? readStored("draft.new"));
    writeStored(`draft.${session}`, null);
    this.#page.store.set({ session: null, title: null });
  }

  /** Saves the scroll position, to restore it after a reload. */
  #savePosition() {
    const session = this.#page.store.get("session");
    if (!session || !this.#runs.size) return;
    const place = this.follower.place;
    writeStored(`place.${session}`, place && { run: place.element.dataset.run, offset: place.offset });
  }

  #savedPosition(session) {
    const place = readStored(`place.${session}`);
    const view = place && this.#runs.get(place.run);
    return view ? { element: view.element, offset: place.offset } : null;
  }
}

function updateAddress(session, how = "pushState") {
  if (location.hash.slice(1) === (session ?? "")) return;
  history[how](null, "", session ? `#${session}` : location.pathname);
}
