/** The list of conversations: search, rename, delete, export. The address holds the open one. */

import { get } from "../feed/api.js";
import { Drawer } from "./drawer.js";
import { fill, h, icon } from "../dom/elements.js";
import { SessionRow } from "./session_row.js";

const TYPED_MS = 200; // after the last key, before searching
const BUSY_MS = 500; // while a menu or a rename field is open
const PAGE = 200; // size of a page of the list

/** The session in the address (`#ses_x`), or null: other text must not reach a request. */
export function sessionInAddress() {
  return /^#(ses_\w+)$/.exec(location.hash)?.[1] ?? null;
}

export function start(page) {
  page.drawer = new Drawer(page);
  page.sessions = new Sessions(page);
}

class Sessions {
  #page;
  #rows = new Map();
  #sessions = []; // as listed by the server
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

  #build() {
    const fresh = {
      type: "button",
      class: "new-session",
      onclick: () => this.begin(),
      title: `New conversation (${KEYS})`,
    };
    this.search = h("input", {
      type: "search",
      maxlength: 200,
      "aria-label": "Search conversations",
      placeholder: "Search",
      title: "Ctrl+K",
    });
    this.list = h("div", { class: "session-list" });
    const older = { type: "button", class: "quiet", hidden: true, onclick: () => this.#showMore() };
    this.older = h("button", older, "Show older");
    const close = {
      type: "button",
      class: "quiet drawer-close",
      "aria-label": "Close",
      onclick: () => this.#page.drawer.close(),
    };
    const head = h(
      "div",
      { class: "sidebar-head" },
      h(
        "div",
        { class: "sidebar-first" },
        h("button", fresh, icon("plus"), "New conversation"),
        h("button", close, icon("cross")),
      ),
      h("label", { class: "search" }, icon("search"), this.search),
    );
    this.#page.at("sidebar").append(head, h("nav", { "aria-label": "Conversations" }, this.list, this.older));
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

  /** Fetches the list, debounced. */
  refresh(after_ms = 60) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#read(), after_ms);
  }

  async #read(before = null) {
    const asking = ++this.#asking;
    const words = this.search.value.trim();
    const query = new URLSearchParams({ ...(words && { q: words }), ...(before && { before }) });
    try {
      const { sessions } = await get(`/sessions${query.size ? `?${query}` : ""}`);
      if (asking !== this.#asking) return;
      this.#more = sessions.length >= PAGE && !words;
      this.#sessions = before ? [...this.#sessions, ...sessions] : sessions;
      this.#draw(words);
    } catch (error) {
      if (asking !== this.#asking || error.status === 401 || error.status === 0) return; // shown elsewhere
      this.#order = "";
      fill(this.list, h("p", { class: "problem", role: "alert" }, error.message));
    }
  }

  #showMore() {
    const last = this.#sessions.at(-1);
    if (last) this.#read(last.id);
  }

  #draw(words) {
    clearTimeout(this.#redrawing); // a newer search may be pending
    if (this.list.querySelector(".renaming, .menu:popover-open")) {
      this.#redrawing = setTimeout(() => this.#draw(words), BUSY_MS);
      return;
    }
    const rows = new Map(this.#sessions.map((session) => [session.id, this.#row(session)]));
    this.#rows = rows;
    this.#page.store.set({ sessions: this.#sessions });
    const none = words ? "No results." : "Your conversations are listed here.";
    const days = words ? [["Results", this.#sessions]] : byDay(this.#sessions);
    this.#place(days, h("p", { class: "faint none" }, none));
    this.older.hidden = !this.#more;
    this.#mark();
  }

  /** Redraws only after a change: moving an element loses the focus. */
  #place(days, none) {
    const order = JSON.stringify(days.map(([name, members]) => [name, members.map(({ id }) => id)]));
    if (order === this.#order && this.list.firstChild) return;
    this.#order = order;
    const focused = document.activeElement;
    fill(this.list, this.#rows.size ? days.map(([name, members]) => group(name, members, this.#rows)) : none);
    if (this.list.contains(focused)) focused.focus({ preventScroll: true });
  }

  #row(session) {
    const row = this.#rows.get(session.id) ?? new SessionRow(session, this.#page);
    row.show(session);
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
    const title = this.#sessions.find(({ id }) => id === open)?.title;
    if (title !== undefined && title !== store.get("title")) store.set({ title });
  }

  #key(event) {
    const command = event.ctrlKey || event.metaKey,
      key = event.key.toLowerCase();
    const writing = event.target.matches?.("input, textarea, select, [contenteditable]");
    const searches =
      (command && !event.shiftKey && key === "k") || (key === "/" && !writing && !command && !event.altKey);
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (searches) {
      event.preventDefault();
      this.#page.drawer.open();
      this.search.select();
      this.search.focus();
    } else if (command && event.shiftKey && key === "o") {
      event.preventDefault();
      this.begin();
    }
  }
}

const KEYS = /Mac|iP/.test(navigator.platform) ? "⌘ Shift O" : "Ctrl+Shift+O";

function group(name, sessions, rows) {
  const id = `sessions-${name.replace(/\W+/g, "-").toLowerCase()}`;
  const items = sessions.map((session) => rows.get(session.id).element);
  return [h("h2", { class: "session-day", id }, name), h("ul", { class: "sessions", "aria-labelledby": id }, items)];
}

function byDay(sessions) {
  const days = new Map();
  for (const session of sessions) {
    const name = day(session.updated ?? session.created);
    days.set(name, [...(days.get(name) ?? []), session]);
  }
  return [...days];
}

function day(at) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  const days = Math.ceil((midnight - at * 1000) / 86_400_000);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  return days <= 7 ? "Previous 7 days" : "Older";
}
