/** One document in the side panel: as the model writes it, and stored; edited, with its suggestions and versions. */

import { get } from "../feed/api.js";
import { copyButton } from "../dom/copy.js";
import { saveText } from "../dom/download.js";
import { button, fill, h, icon } from "../dom/elements.js";
import { loadOnce } from "../dom/forms.js";
import { DocumentText, path } from "./document_text.js";
import { endingOf } from "../text/file_language.js";
import { t, ts } from "../dom/texts.js";

const AUTHORS = ts("document.by", ["model", "person"]);

export class DocumentPane {
  #view = null; // while the model writes
  #edit = null;
  #loading = 0;

  /** `changed()` is called when title or version are known anew. */
  constructor(id, changed) {
    this.id = id;
    this.changed = changed;
    this.now = null; // the document as the server has it
    this.title = t("document.title");
    this.kind = "markdown";
    this.text = "";
    this.state = h("p", { class: "document-state faint", role: "status" });
    this.suggestions = h("div", { class: "document-suggestions", hidden: true });
    const props = { class: "document-content", tabindex: 0, role: "group", "aria-label": t("document.text") };
    this.content = h("div", props);
    const load = () => import("./document_edit.js");
    const edit = loadOnce(load, ({ DocumentEdit }) => this.#openEdit(DocumentEdit));
    this.editButton = button([icon("pencil"), t("document.edit")], edit);
    const copy = copyButton(t("document.copy.hint"), () => this.text, t("document.copy"));
    const words = [icon("save"), t("document.download")];
    const save = button(words, () => saveText(this.text, this.title, endingOf(this.kind)), { class: "quiet" });
    this.tools = h("div", { class: "buttons document-tools" }, this.editButton, copy, save);
    this.versions = h("div", {});
    const parts = [this.state, this.tools, this.suggestions, this.content, this.versions];
    this.element = h("div", { class: "document" }, parts);
  }

  get isWriting() {
    return this.#view !== null;
  }

  get isEditing() {
    return this.#edit !== null;
  }

  /** The model begins the text, perhaps anew. */
  begin({ title, kind }) {
    this.#loading += 1;
    Object.assign(this, { title: title ?? this.title, kind: kind ?? this.kind, text: "", now: null });
    this.#view = new DocumentText(this.kind);
    this.content.setAttribute("aria-busy", "true");
    this.state.textContent = t("document.writing");
    this.editButton.hidden = true;
    fill(this.content, this.#view.element);
    this.changed(this);
  }

  write(text) {
    this.text += text;
    this.#view?.add(text);
  }

  /** What was streamed is stored, or discarded. */
  async finish({ ok }) {
    this.#view?.close();
    this.#view = null;
    this.content.removeAttribute("aria-busy");
    if (ok) return this.load();
    this.state.textContent = t("document.discarded");
    return undefined;
  }

  /** Reads it from the server. A person who edits it goes on. */
  async load() {
    const loading = ++this.#loading;
    try {
      const parts = [import("./suggestions.js"), import("./versions.js")];
      const [now, ...shown] = await Promise.all([get(path(this.id)), ...parts]);
      if (loading === this.#loading) this.#show(now, Object.assign({}, ...shown));
    } catch (error) {
      if (loading === this.#loading) this.state.textContent = error.message;
    }
  }

  #show(now, { showSuggestions, versionList }) {
    const isNew = now.text !== this.now?.text || now.kind !== this.now?.kind;
    if (now.version !== this.now?.version) fill(this.versions, versionList(this.id)); // else an open list stays open
    Object.assign(this, { now, title: now.title, kind: now.kind, text: now.text });
    this.changed(this);
    const by = AUTHORS[now.author] ?? now.author;
    this.state.textContent = t("document.state", { version: String(now.version), by });
    this.editButton.hidden = this.isEditing;
    showSuggestions(this.suggestions, now, () => this.load());
    if (isNew) {
      const view = new DocumentText(now.kind);
      view.add(now.text);
      view.close();
      fill(this.content, view.element);
    }
  }

  #openEdit(DocumentEdit) {
    if (!this.now || this.isEditing) return;
    this.#edit = new DocumentEdit(this.now, async (saved) => {
      this.#edit.element.remove();
      this.#edit = null;
      this.content.hidden = this.editButton.hidden = false;
      this.editButton.focus();
      if (saved) await this.load();
    });
    this.content.hidden = this.editButton.hidden = true;
    this.content.before(this.#edit.element);
    this.#edit.focus();
  }
}
