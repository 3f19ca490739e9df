/** The tree of the workspace: folders are listed when they are opened; arrow keys move in it as in any tree. */

import { fill, h, icon } from "../dom/elements.js";
import { t } from "../dom/more_texts.js";
import { formatSize } from "../cards/changed_files.js";
import { escapeLine } from "../text/exact_text.js";
import { folderOf, list } from "./requests.js";

const ICONS = { folder: "folder", file: "file", link: "plug", other: "ban" };

class Row {
  /** `entry` of GET /workspace; the root has no element of its own. */
  constructor(tree, entry, level) {
    Object.assign(this, { tree, entry, level, rows: null, more: 0, open: false });
    this.children = level ? h("ul", { role: "group", hidden: true }) : tree.element;
    if (level) this.element = this.#build();
  }

  #build() {
    const { entry, level } = this;
    const isFolder = entry.kind === "folder";
    this.mark = h("span", { class: "tree-mark" }, isFolder ? icon("right") : null);
    const size = entry.kind === "file" ? formatSize(entry.size) : entry.kind === "link" ? t("workspace.link") : null;
    const name = h("bdi", { class: "tree-name" }, escapeLine(entry.name));
    const facts = h("span", { class: "faint tree-size" }, entry.private ? t("workspace.private") : size);
    const row = { class: "tree-row", dataset: { kind: entry.kind }, onclick: () => this.tree.press(this) };
    this.line = h("div", row, this.mark, icon(ICONS[entry.kind]), name, facts);
    const props = { role: "treeitem", tabindex: -1, "aria-level": level, "aria-expanded": isFolder ? "false" : null };
    const element = h("li", { ...props, "aria-selected": "false" }, this.line, isFolder ? this.children : null);
    element.style.setProperty("--level", level);
    return element;
  }

  /** Takes over what is new of an entry that was there before. */
  update(entry) {
    const changed = entry.size !== this.entry.size || entry.modified !== this.entry.modified;
    this.entry = entry;
    if (changed && entry.kind === "file") this.line.querySelector(".tree-size").textContent = formatSize(entry.size);
  }

  async expand(open = true) {
    if (this.open === open || this.entry.kind !== "folder") return;
    this.open = open;
    this.element.setAttribute("aria-expanded", String(open));
    this.children.hidden = !open;
    if (open && !this.rows) await this.load();
  }

  /** Lists it anew; rows that are still there stay as they are, with what is open in them. */
  async load() {
    const shown = Math.max(1, this.rows?.length ?? 1);
    let answer = await list(this.entry.path, { hidden: this.tree.hidden });
    const entries = [...answer.entries];
    while (entries.length < shown && answer.more) {
      answer = await list(this.entry.path, { start: entries.length, hidden: this.tree.hidden });
      entries.push(...answer.entries);
    }
    this.tree.answered(answer);
    this.#show(entries, answer.more);
  }

  async #loadMore() {
    const at = this.rows.length;
    const answer = await list(this.entry.path, { start: at, hidden: this.tree.hidden });
    this.#show([...this.rows.map(({ entry }) => entry), ...answer.entries], answer.more);
    this.rows[at]?.focus();
  }

  #show(entries, more) {
    const known = new Map((this.rows ?? []).map((row) => [`${row.entry.kind} ${row.entry.name}`, row]));
    this.rows = entries.map((entry) => {
      const row = known.get(`${entry.kind} ${entry.name}`);
      row?.update(entry);
      return row ?? new Row(this.tree, entry, this.level + 1);
    });
    const focused = document.activeElement;
    fill(this.children, this.rows.length ? this.rows.map(({ element }) => element) : this.#empty(), this.#rest(more));
    if (focused !== document.body && focused?.isConnected) focused.focus({ preventScroll: true });
    if (this.tree.selected && !this.tree.selected.element.isConnected) this.tree.select(null); // it is gone
    this.tree.settle();
  }

  #empty() {
    const words = t(this.level ? "workspace.empty_folder" : "workspace.empty");
    return h("li", { role: "none", class: "faint tree-empty" }, words);
  }

  #rest(more) {
    if (!more) return null;
    const words = t("workspace.more", { count: more });
    const line = h("div", { class: "tree-row tree-more" }, words);
    const onclick = () => this.tree.guard(() => this.#loadMore());
    return h("li", { role: "treeitem", tabindex: -1, "aria-level": this.level + 1, onclick }, line);
  }

  focus() {
    this.tree.select(this);
    this.element.focus();
  }
}

export class FileTree {
  hidden = false; // names that begin with a dot are shown
  selected = null;

  /** `openFile(entry)`, `answered(listing)`, `failed(error)`, `selectionChanged()`, `keyed(key)` for F2 and Delete. */
  constructor(callbacks) {
    Object.assign(this, callbacks);
    this.element = h("ul", { class: "file-tree", role: "tree", "aria-label": t("workspace.files") });
    this.root = new Row(this, { path: "", name: "", kind: "folder" }, 0);
    this.root.open = true;
    this.element.addEventListener("keydown", (event) => this.#key(event));
  }

  /** The folder that is selected, or that the selected file is in. */
  get folder() {
    const entry = this.selected?.entry;
    if (!entry) return "";
    return entry.kind === "folder" ? entry.path : folderOf(entry.path);
  }

  async guard(work) {
    try {
      await work();
    } catch (error) {
      if (typeof error.status !== "number") throw error;
      this.failed(error);
    }
  }

  load = () => this.guard(() => this.root.load());

  /** Shows other entries in place of the tree: what a search has found. */
  showFound(entries) {
    const found = new Row(this, { path: "", name: "", kind: "folder" }, 0);
    found.rows = entries.map((entry) => new Row(this, { ...entry, name: entry.path }, 1));
    this.found = found;
    const elements = found.rows.map(({ element }) => element);
    fill(this.element, elements);
    this.select(null);
    this.settle();
  }

  showTree() {
    this.found = null;
    return this.load();
  }

  press(row) {
    this.select(row);
    row.element.focus({ preventScroll: true });
    if (row.entry.kind === "folder") this.guard(() => row.expand(!row.open));
    else if (row.entry.kind === "file") this.openFile(row.entry);
  }

  select(row) {
    this.selected?.element.setAttribute("aria-selected", "false");
    this.selected = row;
    row?.element.setAttribute("aria-selected", "true");
    this.settle();
    this.selectionChanged();
  }

  /** Leaves exactly one row to be reached with Tab. */
  settle() {
    const items = this.#items();
    const current = this.selected && items.includes(this.selected.element) ? this.selected.element : items[0];
    for (const item of this.element.querySelectorAll('[tabindex="0"]')) item.tabIndex = -1;
    if (current) current.tabIndex = 0;
  }

  /** Lists the folders anew in which these paths lie, as far as they are shown. */
  async refresh(paths) {
    if (this.found) return;
    const folders = new Set([...paths].map(folderOf));
    for (const row of this.#loaded(this.root)) if (folders.has(row.entry.path)) await this.guard(() => row.load());
    // A new folder shows in the nearest one that is open.
    for (const folder of folders) {
      const above = this.#nearest(folder);
      if (above && above.entry.path !== folder) await this.guard(() => above.load());
    }
  }

  reload = async () => {
    for (const row of this.#loaded(this.root)) await this.guard(() => row.load());
  };

  /** Opens the folders down to a path, and selects it if it is there. */
  async reveal(path) {
    let row = this.root;
    await this.guard(async () => {
      if (!row.rows) await row.load();
      for (const name of path.split("/")) {
        const next = row.rows?.find(({ entry }) => entry.name === name);
        if (!next) return;
        row = next;
        await row.expand();
      }
    });
    if (row !== this.root) this.select(row);
    row.element?.scrollIntoView({ block: "nearest" });
  }

  #nearest(folder) {
    for (let at = folder; ; at = folderOf(at)) {
      const found = this.#loaded(this.root).find((row) => row.entry.path === at);
      if (found || !at) return found;
    }
  }

  #loaded(row) {
    return [row, ...(row.rows ?? []).flatMap((child) => (child.rows ? this.#loaded(child) : []))];
  }

  /** The rows that can be seen, in order. */
  #items() {
    return [...this.element.querySelectorAll('[role="treeitem"]')].filter((item) => !item.closest("ul[hidden]"));
  }

  rowOf(element) {
    const all = (row) => [row, ...(row.rows ?? []).flatMap(all)];
    return all(this.found ?? this.root).find((row) => row.element === element);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const items = this.#items();
    const element = document.activeElement.closest('[role="treeitem"]');
    const at = items.indexOf(element);
    if (at < 0) return;
    const row = this.rowOf(element);
    const goes = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (goes !== undefined) this.#focus(items[Math.min(Math.max(goes, 0), items.length - 1)]);
    else if (event.key === "ArrowRight") this.#right(row, items[at + 1]);
    else if (event.key === "ArrowLeft") this.#left(row, element);
    else if (event.key === "Enter" || event.key === " ") row ? this.press(row) : element.click();
    else if (row && (event.key === "F2" || event.key === "Delete")) {
      this.select(row);
      this.keyed(event.key);
    } else return;
    event.preventDefault();
  }

  #focus(element) {
    const row = this.rowOf(element);
    if (row) row.focus();
    else element.focus();
  }

  #right(row, next) {
    if (row?.entry.kind !== "folder") return;
    if (!row.open) this.guard(() => row.expand());
    else if (row.children.contains(next)) this.#focus(next);
  }

  #left(row, element) {
    const above = element.parentElement.closest('[role="treeitem"]');
    if (row?.open) this.guard(() => row.expand(false));
    else if (above) this.#focus(above);
  }
}
