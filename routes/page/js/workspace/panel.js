/** The workspace panel: the tree, or one file of it; files can be dropped on it. It shows what runs change as they do. */

import { saveBlob } from "../dom/download.js";
import { announce, button, buttonRow, dialog, h, icon, restoreFocus } from "../dom/elements.js";
import { Outcome } from "../dom/forms.js";
import { styleAt } from "../dom/library.js";
import { Menu } from "../dom/menu.js";
import { t } from "../dom/more_texts.js";
import { escapeLine } from "../text/exact_text.js";
import { newFolder, rename, uploadAll } from "./actions.js";
import { FileTree } from "./file_tree.js";
import { FileView } from "./file_view.js";
import { entryAt, find, folderOf, nameOf, readArchive, removeEntry, undoChange } from "./requests.js";

await styleAt("css/later/workspace.css").catch(() => undefined);

const NAME = "workspace";
const PAUSE_MS = 250; // runs change several files at once, and people type
let open = null;

/** Opens the panel, or closes it. */
export function toggle(page, opener) {
  if (page.panel.name === NAME) return page.panel.close();
  open = new WorkspacePanel(page);
  const closed = () => {
    open?.close();
    open = null;
  };
  return page.panel.toggle(NAME, t("workspace.title"), open.element, opener, { closed, isWide: true });
}

/** Opens the panel with a file, at a line or page, or at a folder. */
export async function show(page, { path, ...at }, opener) {
  if (!open || page.panel.name !== NAME) toggle(page, opener);
  await open.reveal(path, at);
}

class WorkspacePanel {
  #stops = [];
  #timer = null; // of the search
  #settling = null; // of changes
  #changed = new Set();
  #file = null;
  #can = { write: false, undo: false };
  #most = Infinity;

  constructor(page) {
    this.outcome = new Outcome();
    this.tree = new FileTree({
      openFile: (entry) => this.#openFile(entry),
      answered: (listing) => this.#answered(listing),
      failed: (error) => this.outcome.show(error.message, "problem"),
      selectionChanged: () => this.#showTarget(),
      keyed: (key) => this.#can.write && this.#guard(() => this.#changeSelected(key)),
    });
    this.element = h("div", { class: "workspace" }, this.#treeView());
    this.#listen(page);
    this.tree.load();
  }

  #listen(page) {
    this.#stops.push(page.store.watch("changedFile", (event) => event && this.#fileChanged(event)));
    const focused = () => !this.tree.found && this.tree.reload();
    addEventListener("focus", focused); // other programs change files, too
    this.#stops.push(() => removeEventListener("focus", focused));
    for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
      this.element.addEventListener(name, (event) => this.#drag(event));
    }
  }

  close() {
    clearTimeout(this.#timer);
    clearTimeout(this.#settling);
    this.#stops.forEach((stop) => stop());
    this.#file?.close();
  }

  #treeView() {
    const words = { "aria-label": t("workspace.filter"), placeholder: t("workspace.filter") };
    const oninput = () => this.#later(() => this.#filter());
    this.search = h("input", { type: "search", ...words, oninput });
    this.picker = h("input", { type: "file", multiple: true, hidden: true });
    this.picker.addEventListener("change", () => {
      this.#guard(() => this.#upload([...this.picker.files], this.tree.folder)).then(() => (this.picker.value = ""));
    });
    const tool = (key, sign, does) => button([icon(sign), t(key)], does, { hidden: true });
    this.uploads = tool("workspace.upload", "upload", () => this.picker.click());
    this.folders = tool("workspace.folder.new", "folder", () => this.#guard(() => this.#newFolder()));
    const more = button(icon("more"), null, { class: "quiet", "aria-label": t("workspace.menu") });
    this.menu = new Menu(more, () => this.#actions());
    const buttons = buttonRow(this.uploads, this.folders, more, this.menu.element, this.picker);
    this.target = h("p", { class: "faint workspace-target", role: "status" });
    this.drop = h("p", { class: "workspace-drop", "aria-hidden": "true" }, t("workspace.drop"));
    const bar = h("div", { class: "workspace-bar" }, this.search, buttons);
    this.view = h("div", { class: "workspace-tree" }, bar, this.target, this.outcome.element, this.tree.element);
    return [this.view, this.drop];
  }

  #answered({ can, max_upload_bytes: most, whole }) {
    Object.assign(this, { whole });
    this.#can = can;
    this.#most = most;
    this.uploads.hidden = this.folders.hidden = !can.write;
    this.#showTarget();
  }

  #showTarget() {
    const { folder } = this.tree;
    this.target.textContent = this.#can.write && folder ? t("workspace.target", { folder: escapeLine(folder) }) : "";
  }

  /** The rows of the menu, for what is selected. */
  #actions() {
    const entry = this.tree.selected?.entry;
    const name = entry && escapeLine(entry.name);
    const act = (key) => () => this.#guard(() => this.#changeSelected(key));
    return [
      entry && this.#can.write && [t("workspace.rename.one", { name }), "pencil", act("F2")],
      entry && this.#can.write && [t("workspace.delete.one", { name }), "bin", act("Delete")],
      [t("workspace.archive", { name: this.tree.folder || t("workspace.title") }), "save", () => this.#archive()],
      [t(this.tree.hidden ? "workspace.hide" : "workspace.show"), "file", () => this.#toggleHidden()],
      [t("workspace.reload"), "renew", () => this.tree.reload()],
    ].filter(Boolean);
  }

  #toggleHidden() {
    this.tree.hidden = !this.tree.hidden;
    return this.#guard(() => (this.search.value ? this.#filter() : this.tree.reload()));
  }

  #archive() {
    const { folder } = this.tree;
    return this.#guard(async () => {
      this.outcome.show(t("workspace.archive.made"));
      saveBlob(await readArchive(folder), `${nameOf(folder) || NAME}.zip`);
      this.outcome.clear();
    });
  }

  async #guard(work) {
    this.outcome.clear();
    try {
      await work();
    } catch (error) {
      if (typeof error.status !== "number") throw error;
      (this.#file?.outcome ?? this.outcome).show(error.message, "problem");
    }
  }

  #later(work) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#guard(work), PAUSE_MS);
  }

  async #filter() {
    const words = this.search.value.trim();
    if (!words) return this.tree.showTree();
    const { entries, whole } = await find(words, { hidden: this.tree.hidden });
    if (words !== this.search.value.trim()) return undefined; // more was typed meanwhile
    this.tree.showFound(entries);
    this.outcome.show(t(whole ? "workspace.found" : "workspace.found.more", { count: entries.length }));
    return undefined;
  }

  #fileChanged({ path }) {
    this.#changed.add(path);
    clearTimeout(this.#settling);
    this.#settling = setTimeout(() => {
      const paths = new Set(this.#changed);
      this.#changed.clear();
      this.tree.refresh(paths);
      if (this.#file && paths.has(this.#file.entry.path)) this.#file.reload();
    }, PAUSE_MS);
  }

  #openFile(entry, { moved = true, ...at } = {}) {
    this.#file?.close();
    const back = () => this.#back();
    const removing = async (one) => {
      await this.#remove(one);
      this.#back();
    };
    const renaming = async (one) => {
      const path = await rename(one);
      if (!path) return;
      await this.tree.refresh([one.path]);
      await this.tree.reveal(path);
      this.#openFile({ ...one, path, name: nameOf(path) });
    };
    this.#file = new FileView(entry, { back, rename: renaming, remove: removing, canWrite: this.#can.write, at });
    this.view.hidden = true;
    this.element.querySelector(".file-view")?.remove();
    this.element.prepend(this.#file.element);
    this.element.closest(".panel")?.scrollTo(0, 0);
    if (moved) this.#file.heading.focus({ preventScroll: true });
  }

  #back() {
    this.#file?.close();
    this.#file?.element.remove();
    this.#file = null;
    this.view.hidden = false;
    restoreFocus(this.tree.element.querySelector('[tabindex="0"]') ?? this.search);
  }

  /** Shows a file, or a folder in the tree. */
  async reveal(path, at) {
    await this.#guard(async () => {
      await this.tree.reveal(path);
      const entry = await entryAt(path).catch((error) => {
        if (error.status === 404) return null;
        throw error;
      });
      if (entry?.kind === "folder") return this.#file && this.#back();
      if (!entry) this.outcome.show(t("workspace.gone", { path: escapeLine(path) }), "problem");
      else this.#openFile(entry, at);
    });
  }

  async #changeSelected(key) {
    const { entry } = this.tree.selected;
    if (key === "Delete") {
      if (await this.#isSure(entry)) await this.#remove(entry);
      return;
    }
    const path = await rename(entry);
    if (!path) return;
    await this.tree.refresh([path]);
    await this.tree.reveal(path);
  }

  #isSure({ name, kind }) {
    const title = t("workspace.delete.question", { name: escapeLine(name) });
    return dialog(title, (close) =>
      [
        kind === "folder" ? h("p", {}, t("workspace.delete.folder")) : null,
        buttonRow(
          button(t("workspace.delete"), () => close(true), { class: "danger" }),
          button(t("workspace.cancel"), () => close(false)),
        ),
      ].filter(Boolean),
    );
  }

  async #remove({ path }) {
    const { change } = await removeEntry(path);
    this.tree.select(null);
    await this.tree.refresh([path]);
    const name = escapeLine(nameOf(path));
    this.#done(t(change ? "workspace.deleted" : "workspace.deleted.final", { name }), [change], path);
  }

  async #newFolder() {
    const path = await newFolder(this.tree.folder);
    if (!path) return;
    await this.tree.refresh([path]);
    await this.tree.reveal(path);
    this.#done(t("workspace.folder.made", { name: escapeLine(nameOf(path)) }), [], path);
  }

  async #upload(files, folder) {
    if (!files.length) return;
    const say = (words) => this.outcome.show(words);
    const { done, changes } = await uploadAll(files, folder, this.#most, say).finally(() => this.tree.reload());
    if (!done.length) return this.outcome.clear();
    if (done.length === 1) await this.tree.reveal(done[0]);
    this.#done(t("workspace.uploaded", { count: done.length }), changes, done[0]);
  }

  /** Says what was done, with a button that undoes it where that is possible. */
  #done(words, changes, path) {
    const kept = changes.filter(Boolean);
    const undo = async () => {
      for (const change of kept.toReversed()) await undoChange(change);
      await this.tree.refresh([path]);
      this.outcome.show(t("workspace.undone"), "good");
      restoreFocus(this.tree.element.querySelector('[tabindex="0"]'));
    };
    const undoing = kept.length ? button(t("workspace.undo"), () => this.#guard(undo)) : null;
    this.outcome.show([words, undoing], "good");
    announce(words);
  }

  #drag(event) {
    if (!this.#can.write || !event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    event.stopPropagation(); // else it is attached to the message, too
    const isOver = event.type === "dragover" || event.type === "dragenter";
    this.element.classList.toggle("dropping", isOver);
    if (event.type !== "drop") return;
    if (this.#file) this.#back();
    const files = [...event.dataTransfer.items].filter((item) => !item.webkitGetAsEntry?.()?.isDirectory);
    const given = files.map((item) => item.getAsFile()).filter(Boolean);
    if (!given.length) return this.outcome.show(t("workspace.drop.folders"), "problem");
    this.#guard(() => this.#upload(given, this.#folderAt(event.target)));
  }

  /** The folder that something was dropped on: that of the row, or else the selected one. */
  #folderAt(element) {
    const row = element.closest?.('[role="treeitem"]');
    const found = row && this.tree.rowOf(row)?.entry;
    if (!found) return this.tree.folder;
    return found.kind === "folder" ? found.path : folderOf(found.path);
  }
}
