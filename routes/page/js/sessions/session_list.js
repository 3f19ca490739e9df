/** The list of conversations: search, folders, pins, the archive. The address holds the open one. */

import { get } from "../feed/api.js";
import { Drawer } from "./drawer.js";
import { byDay, group } from "./list_groups.js";
import { button, fill, h, icon } from "../dom/elements.js";
import { Roving } from "../dom/roving.js";
import { SessionRow } from "./session_row.js";
import { settingsButton } from "../panels/status_bar.js";
import { t } from "../dom/texts.js";

const TYPED_MS = 200; // after the last key, before searching
const BUSY_MS = 500; // while a menu or a rename field is open
const PAGE = 200; // size of a page of the list

/** The session in the address (`#ses_x`), or null: other text must not reach a request. */
export function start(page) {
  page.drawer = new Drawer(page);
  page.sessions = new Sessions(page);
}

class Sessions {
  #page;
  #rows = new Map();
  #groups = new Map(); // of folders
  #FolderGroup = null; // its code, once there is a folder
  #listed = { sessions: [], pinned: [], folders: [] }; // as the server has them
  #members = new Map(); // of open folders: conversations behind the first page
  #archive = false; // shown in place of the list
  #more = false;
  #order = "";
  #asking = 0;
  #timer = null;
  #redrawing = null;

  constructor(page) {
    this.#page = page;
    this.#build();
    this.#listen();
  }

  get folders() {
    return this.#listed.folders;
  }

  #build() {
    const props = { class: "new-session", title: `${t("list.new")} (${KEYS})` };
    const fresh = button([icon("plus"), t("list.new")], () => this.begin(), props);
    this.search = h("input", {
      type: "search",
      maxlength: 200,
      "aria-label": t("list.search"),
      placeholder: t("list.search.short"),
      title: t("keys.search"),
    });
    this.list = h("div", { class: "session-list" });
    this.roving = new Roving(this.list, ".session-link, .folder-toggle", ".session-more");
    this.older = button(t("list.older"), () => this.#showMore(), { class: "quiet", hidden: true });
    this.switch = button(null, () => this.#toggleArchive(), { class: "quiet" });
    const words = [icon("folder"), t("list.folder.new")];
    const add = button(words, () => this.folderAction("create"), { class: "quiet" });
    this.tools = h("div", { class: "list-tools" }, add, this.switch, settingsButton(this.#page));
    const first = h("div", { class: "sidebar-first" }, fresh, this.#page.drawer.buttons());
    const search = h("label", { class: "search" }, icon("search"), this.search);
    const head = h("div", { class: "sidebar-head" }, first, search);
    const nav = h("nav", { "aria-label": t("page.conversations") }, this.list, this.older, this.tools);
    this.#page.at("sidebar").append(head, nav);
    this.#nameSwitch();
  }

  #listen() {
    const { store } = this.#page;
    let under_way = null;
    store.watch("runs", (runs) => {
      const now = runs.map(({ id }) => id).join();
      if (now !== under_way) this.refresh();
      under_way = now;
      this.#mark();
    });
    store.watch("list", () => this.refresh()); // changed here or on another page
    store.watch("approvals", () => this.#mark());
    store.watch("session", () => this.#mark());
    store.watch("connection", ({ state }) => state === "open" && this.refresh());
    document.addEventListener("visibilitychange", () => document.hidden || this.refresh()); // new titles
    this.search.addEventListener("input", () => this.refresh(TYPED_MS));
    this.search.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.search.value) return;
      event.preventDefault();
      event.stopPropagation();
      this.search.value = "";
      this.refresh();
    });
    addEventListener("keydown", (event) => this.#key(event));
  }

  /** Starts a new conversation; nothing is stored before its first message. */
  begin() {
    this.#page.drawer.close();
    this.#page.conversation.open(null);
    this.#page.at("composer-text")?.focus();
  }

  open(session) {
    this.#page.drawer.close();
    this.#page.conversation.open(session);
  }

  /** Opens a folder's dialog, whose code few need. */
  async folderAction(name, ...given) {
    const folders = await import("./folders.js");
    return folders[name](this.#page, ...given);
  }

  links = () => import("./share.js");

  /** Fetches the list, debounced. */
  refresh(after_ms = 60) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#read(), after_ms);
  }

  async #read(before = null) {
    const asking = ++this.#asking;
    const words = this.search.value.trim();
    const query = new URLSearchParams({
      ...(words ? { q: words } : this.#archive && { archived: true }),
      ...(before && { before }),
    });
    try {
      const listed = await get(`/sessions${query.size ? `?${query}` : ""}`);
      if (asking !== this.#asking) return;
      this.#more = listed.sessions.length >= PAGE && !words;
      const sessions = before ? [...this.#listed.sessions, ...listed.sessions] : listed.sessions;
      this.#listed = { ...this.#listed, ...listed, sessions };
      await this.#readFolders(words || this.#archive);
      if (asking === this.#asking) this.#draw(words);
    } catch (error) {
      if (asking !== this.#asking || error.status === 401 || error.status === 0) return; // shown elsewhere
      this.#order = "";
      fill(this.list, h("p", { class: "problem", role: "alert" }, error.message));
    }
  }

  /** Reads what open folders hold beyond the conversations that are listed anyway. */
  async #readFolders(skipped) {
    if (skipped || !this.folders.length) return;
    this.#FolderGroup ??= (await import("./folder_group.js")).FolderGroup;
    const all = [...this.#listed.sessions, ...this.#listed.pinned];
    const there = (id) => new Set(all.filter(({ folder }) => folder === id).map((one) => one.id)).size;
    const lacking = this.folders.filter(({ id, sessions }) => this.#group(id).isOpen && sessions > there(id));
    const read = lacking.map(async ({ id }) => [id, (await get(`/sessions?folder=${id}`)).sessions]);
    this.#members = new Map(await Promise.all(read));
  }

  #showMore() {
    const last = this.#listed.sessions.at(-1);
    if (last) this.#read(last.id);
  }

  #toggleArchive() {
    this.#archive = !this.#archive;
    this.search.value = "";
    this.#nameSwitch();
    this.#read();
  }

  #nameSwitch() {
    const [sign, words] = this.#archive ? ["left", t("list.archive.back")] : ["archive", t("list.archive")];
    fill(this.switch, icon(sign), words);
  }

  #draw(words) {
    clearTimeout(this.#redrawing); // a newer search may be pending
    if (this.list.querySelector(".renaming, .menu:popover-open, .dragged")) {
      this.#redrawing = setTimeout(() => this.#draw(words), BUSY_MS);
      return;
    }
    const { sessions, pinned } = this.#listed;
    const all = [...sessions, ...pinned, ...[...this.#members.values()].flat()];
    const titles = Map.groupBy?.(all, ({ title }) => title);
    const isTwin = ({ id, title }) => titles?.get(title).some((one) => one.id !== id);
    this.#rows = new Map(all.map((session) => [session.id, this.#row(session, isTwin(session))]));
    this.#page.store.set({ sessions: all });
    const none = words ? "list.results.none" : this.#archive ? "list.archive.none" : "list.none";
    this.#place(this.#sections(words), h("p", { class: "faint none" }, t(none)));
    this.older.hidden = !this.#more;
    this.#mark();
  }

  /** `[name, conversations, folder or null]` of each section. */
  #sections(words) {
    const { sessions, pinned, folders } = this.#listed;
    if (words) return sessions.length ? [[t("list.results"), sessions, null]] : [];
    if (this.#archive) return sessions.length ? [[t("list.archive"), sessions, null]] : [];
    const others = sessions.filter((one) => !one.pinned);
    const known = new Set(folders.map(({ id }) => id));
    const inside = (folder) => {
      const members = [...others.filter((one) => one.folder === folder.id), ...(this.#members.get(folder.id) ?? [])];
      return [...new Map(members.filter((one) => !one.pinned).map((one) => [one.id, one])).values()];
    };
    return [
      ...(pinned.length ? [[t("list.pinned"), pinned, null]] : []),
      ...folders.map((folder) => [folder.name, inside(folder), folder]),
      ...byDay(others.filter(({ folder }) => !known.has(folder))).map(([name, members]) => [name, members, null]),
    ];
  }

  /** Redraws only after a change: moving an element loses the focus. */
  #place(sections, none) {
    const shown = sections.map(([name, members, folder]) => [name, members.map(({ id }) => id), folder]);
    const order = JSON.stringify(shown);
    if (order === this.#order && this.list.firstChild) return;
    this.#order = order;
    const focused = document.activeElement;
    const drawn = sections.map(([name, members, folder]) =>
      folder ? this.#group(folder.id).show(folder, members, this.#rows) : group(name, members, this.#rows),
    );
    fill(this.list, drawn, this.#rows.size ? null : none);
    if (this.list.contains(focused)) focused.focus({ preventScroll: true });
  }

  #group(id) {
    if (!this.#groups.has(id)) this.#groups.set(id, new this.#FolderGroup(id, this.#page));
    return this.#groups.get(id);
  }

  #row(session, twin) {
    const row = this.#rows.get(session.id) ?? new SessionRow(session, this.#page);
    row.show(session, twin);
    return row;
  }

  /** Marks the conversations that are open, running or waiting for approval. */
  #mark() {
    const { store } = this.#page;
    const open = store.get("session");
    const at_work = new Set((store.get("runs") ?? []).map(({ session }) => session));
    const waiting = Map.groupBy?.(store.get("approvals") ?? [], ({ session }) => session);
    for (const [id, row] of this.#rows) {
      row.mark({
        open: id === open || row.session.branches?.includes(open),
        running: at_work.has(id),
        waiting: waiting?.get(id)?.length ?? 0,
      });
    }
    this.roving.update();
    const title = this.#rows.get(open)?.session.title;
    if (title !== undefined && title !== store.get("title")) store.set({ title });
  }

  #key(event) {
    const command = event.ctrlKey || event.metaKey,
      key = event.key.toLowerCase();
    const writing = event.target.matches?.("input, textarea, select, [contenteditable]");
    const searches =
      (command && !event.shiftKey && key === "k") || (key === "/" && !writing && !command && !event.altKey);
    const begins = command && event.shiftKey && key === "o";
    const folds = command && !event.shiftKey && !event.altKey && key === "b";
    // The dialog last: to look for one costs 10 ms a key in a conversation of 2,000 turns.
    if (!(searches || begins || folds) || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    if (searches) {
      this.#page.drawer.open();
      this.search.select();
      this.search.focus();
    } else if (begins) this.begin();
    else this.#page.drawer.toggle();
  }
}

const KEYS = /Mac|iP/.test(navigator.platform) ? "⌘ Shift O" : "Ctrl+Shift+O";
