/** One file of the workspace: what it is, what can be done with it, and how it looks. */

import { formatAgo } from "../dom/clock.js";
import { saveBlob } from "../dom/download.js";
import { buttonRow, fill, h, iconButton } from "../dom/elements.js";
import { actionButton, confirmButton, Outcome, problemLine } from "../dom/forms.js";
import { t } from "../dom/more_texts.js";
import { formatSize } from "../cards/changed_files.js";
import { escapeLine } from "../text/exact_text.js";
import { showPreview } from "./preview.js";
import { entryAt, folderOf, nameOf, readBlob } from "./requests.js";

const REVOKED_AFTER_MS = 60_000; // a tab that was opened may still read it

export class FileView {
  #urls = [];
  #loading = 0;

  /** `back()`, `rename(entry)` and `remove(entry)`, which return promises; `canWrite`; `at`: its `line` or `page`. */
  constructor(entry, { back, rename, remove, canWrite, at = {} }) {
    Object.assign(this, { entry, back, at });
    this.outcome = new Outcome();
    this.place = h("div", { class: "file-place", "aria-live": "polite" }, t("workspace.loading"));
    this.facts = h("p", { class: "faint" });
    const name = escapeLine(nameOf(entry.path));
    const returns = iconButton(t("workspace.back"), "left", back, { class: "quiet file-back" });
    this.heading = h("h3", { tabindex: -1 }, h("bdi", {}, name));
    const above = folderOf(entry.path);
    const where = above ? h("p", { class: "faint file-where" }, h("bdi", {}, escapeLine(above))) : null;
    const save = async () => saveBlob(await readBlob(entry.path), nameOf(entry.path));
    const word = t("workspace.delete");
    const question = t("workspace.delete.question", { name });
    const removing = confirmButton(word, question, word, this.outcome, () => remove(entry));
    const changing = canWrite ? [actionButton(t("workspace.rename"), this.outcome, () => rename(entry)), removing] : [];
    const buttons = buttonRow(actionButton(t("workspace.download"), this.outcome, save), changing);
    const head = h("header", { class: "file-head" }, returns, h("div", {}, this.heading, where));
    const onkeydown = (event) => {
      if (event.key !== "Escape" || event.defaultPrevented) return;
      event.preventDefault(); // the panel stays open
      back();
    };
    const parts = [head, this.facts, buttons, this.outcome.element, this.place];
    this.element = h("div", { class: "file-view", onkeydown }, parts);
    this.#showFacts();
    this.load();
  }

  #showFacts() {
    const { size, modified } = this.entry;
    if (size === undefined) return;
    this.facts.textContent = t("workspace.facts", { size: formatSize(size), ago: formatAgo(modified) });
  }

  async load() {
    const loading = ++this.#loading;
    const fresh = h("div", {});
    try {
      await showPreview(fresh, this.entry.path, (blob) => this.#keep(blob), this.at);
    } catch (error) {
      if (typeof error.status !== "number") throw error;
      fill(fresh, problemLine(error));
    }
    if (loading !== this.#loading) return;
    fill(this.place, fresh);
    fresh.querySelector(".line-numbers mark")?.scrollIntoView({ block: "center" });
  }

  /** It has changed: shows it as it is now. */
  async reload() {
    const entry = await entryAt(this.entry.path).catch(() => null);
    if (entry) this.entry = entry;
    this.#showFacts();
    await this.load();
  }

  #keep(blob) {
    this.#urls.push(URL.createObjectURL(blob));
    return this.#urls.at(-1);
  }

  close() {
    this.#loading += 1;
    setTimeout(() => this.#urls.forEach((url) => URL.revokeObjectURL(url)), REVOKED_AFTER_MS);
  }
}
