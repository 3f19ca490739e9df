/** The form in which a person edits a document. A text that has moved on meanwhile is shown, and nothing is lost. */

import { request } from "../feed/api.js";
import { announce, button, buttonRow, fill, h } from "../dom/elements.js";
import { actionButton, field, Outcome } from "../dom/forms.js";
import { changeDiff } from "../text/diff.js";
import { path } from "./document_text.js";
import { t } from "../dom/more_texts.js";

/** `document` as `GET /documents/{id}` has it; `done(saved)` ends the editing: true if something was stored. */
export class DocumentEdit {
  constructor({ id, title, version, text }, done) {
    Object.assign(this, { id, title, text, done });
    this.base = version;
    this.outcome = new Outcome();
    this.conflict = h("div", {});
    this.heading = h("input", { type: "text", value: title, maxlength: 200, autocomplete: "off" });
    this.area = h("textarea", { class: "document-area", rows: 20, spellcheck: "true", dir: "auto", value: text });
    const save = actionButton(t("document.save"), this.outcome, () => this.save(), { class: "primary" });
    const cancel = button(t("dialog.cancel"), () => done(false));
    const onsubmit = (event) => {
      event.preventDefault();
      save.click();
    };
    const onkeydown = (event) => {
      if (event.key === "Escape") event.preventDefault(); // it would close the panel, with what was typed
      if (event.key === "s" && (event.ctrlKey || event.metaKey)) onsubmit(event);
    };
    this.element = h(
      "form",
      { class: "form document-edit", "aria-label": t("document.edit.hint"), onsubmit, onkeydown },
      field(t("document.heading"), this.heading),
      field(t("document.text"), this.area),
      buttonRow(save, cancel),
      this.outcome.element,
      this.conflict,
    );
  }

  focus() {
    this.area.focus();
  }

  async save() {
    const text = this.area.value === this.text ? undefined : this.area.value;
    const title = this.heading.value === this.title ? undefined : this.heading.value;
    if (text === undefined && title === undefined) return this.done(false);
    try {
      await request("PUT", path(this.id), { body: { version: this.base, text, title } });
    } catch (error) {
      if (error.code !== "document_changed") throw error;
      return this.#showConflict(error.message);
    }
    announce(t("document.saved"));
    return this.done(true);
  }

  /** Shows what has changed since; saving again puts this text above it. */
  async #showConflict(words) {
    const now = await (await request("GET", path(this.id))).json();
    const diff = changeDiff(this.text, now.text, t("document.changes", { version: String(now.version) }));
    const take = () => {
      this.area.value = now.text;
      fill(this.conflict);
      this.focus();
    };
    Object.assign(this, { base: now.version, text: now.text, title: now.title });
    this.outcome.show(`${words} ${t("document.conflict")}`, "problem");
    fill(this.conflict, diff, button(t("document.take", { version: String(now.version) }), take));
  }
}
