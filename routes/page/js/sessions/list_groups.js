/** Sections of the list of conversations: days, and folders that open and take what is dropped on them. */

import { fill, h, icon } from "../dom/elements.js";
import { Menu } from "../dom/menu.js";
import { readPreference, writePreference } from "../dom/storage.js";
import { t } from "../dom/texts.js";

export const DRAGGED = "application/x-dragoman-session"; // the type of a conversation that is dragged

/** A heading and its rows. Dropped there, a conversation leaves its folder. */
export function group(name, sessions, rows) {
  const id = `sessions-${name.replace(/\W+/g, "-").toLowerCase()}`;
  const items = sessions.map((session) => rows.get(session.id).element);
  return [h("h2", { class: "session-day", id }, name), h("ul", { class: "sessions", "aria-labelledby": id }, items)];
}

/** `[name, conversations]` by the day of their last use. */
export function byDay(sessions) {
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
  if (days <= 0) return t("list.today");
  if (days === 1) return t("list.yesterday");
  return t(days <= 7 ? "list.week" : "list.past");
}

export class FolderGroup {
  #page;
  #folder = null;

  constructor(id, page) {
    this.#page = page;
    this.id = id;
    this.name = h("span", { class: "folder-name", dir: "auto" });
    this.count = h("span", { class: "faint" });
    const toggles = { type: "button", class: "quiet folder-toggle", "aria-controls": `folder-${id}` };
    this.toggle = h("button", { ...toggles, onclick: () => this.#toggle() }, icon("right"), icon("folder"));
    this.toggle.append(this.name, this.count);
    this.more = h("button", { type: "button", class: "quiet session-more" }, icon("more"));
    const does = (name) => () => page.sessions.folderAction(name, this.#folder);
    this.menu = new Menu(this.more, () => [
      [t("list.folder.rename"), "pencil", does("rename")],
      [t("list.folder.delete"), "bin", does("remove")],
    ]);
    this.rows = h("ul", { class: "sessions", id: `folder-${id}` });
    const head = h("h2", { class: "folder-head" }, this.toggle);
    this.element = h("div", { class: "folder" }, head, this.more, this.menu.element, this.rows);
    this.#takeDrops();
  }

  get isOpen() {
    return openFolders().has(this.id);
  }

  show(folder, sessions, rows) {
    this.#folder = folder;
    this.name.textContent = folder.name;
    this.count.textContent = folder.sessions || "";
    this.more.setAttribute("aria-label", t("list.folder.more", { name: folder.name }));
    const items = sessions.map(({ id }) => rows.get(id).element);
    fill(this.rows, items.length ? items : h("li", { class: "faint none" }, t("list.folder.empty")));
    this.rows.setAttribute("aria-label", folder.name);
    this.#draw();
    return this.element;
  }

  #draw() {
    this.toggle.setAttribute("aria-expanded", String(this.isOpen));
    this.rows.hidden = !this.isOpen;
  }

  #toggle(open = !this.isOpen) {
    const ids = openFolders();
    if (open) ids.add(this.id);
    else ids.delete(this.id);
    writePreference(OPEN, [...ids].slice(-100).join(" "));
    this.#draw();
    if (open) this.#page.sessions.refresh(0);
  }

  #takeDrops() {
    const over = (on) => this.element.classList.toggle("drop-target", on);
    this.element.addEventListener("dragover", (event) => {
      if (!event.dataTransfer.types.includes(DRAGGED)) return;
      event.preventDefault();
      over(true);
    });
    this.element.addEventListener("dragleave", (event) => this.element.contains(event.relatedTarget) || over(false));
    this.element.addEventListener("drop", (event) => {
      over(false);
      const session = event.dataTransfer.getData(DRAGGED);
      if (!session) return;
      event.preventDefault();
      event.stopPropagation();
      this.#page.sessions.folderAction("put", session, this.#folder);
    });
  }
}

const OPEN = "folders"; // the preference: ids of open folders
const openFolders = () => new Set((readPreference(OPEN) ?? "").split(" ").filter(Boolean));
