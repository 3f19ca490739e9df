/** A folder in the list of conversations: it opens, has a menu, and takes what is dropped on it. */

import { DRAGGED } from "./list_groups.js";
import { button, fill, h, icon } from "../dom/elements.js";
import { Menu } from "../dom/menu.js";
import { readPreference, writePreference } from "../dom/storage.js";
import { t } from "../dom/more_texts.js";

export class FolderGroup {
  #page;
  #folder = null;

  constructor(id, page) {
    this.#page = page;
    this.id = id;
    this.name = h("span", { class: "folder-name", dir: "auto" });
    this.count = h("span", { class: "faint" });
    const parts = [icon("right"), icon("folder"), this.name, this.count];
    const toggles = { class: "quiet folder-toggle", tabindex: -1, "aria-controls": `folder-${id}` };
    this.toggle = button(parts, () => this.#toggle(), toggles);
    this.more = button(icon("more"), null, { class: "quiet session-more", tabindex: -1 });
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
