/** The dialog for another try from an event of a run: another model, other arguments, a further message. */

import { editForm } from "../../approvals/decision_forms.js";
import { button, dialog, dialogButtons, h, restoreFocus } from "../../dom/elements.js";
import { field, Outcome, submitting } from "../../dom/forms.js";
import { t } from "../../dom/more_texts.js";
import { post } from "../../feed/api.js";
import { copyChoice } from "../../panels/models.js";
import { groupOf, modelGroups } from "../branching.js";
import { randomKey } from "../sender.js";

export class TryDialog {
  #outcome = new Outcome();

  /** `from`: `{at, edit, call}`, the number of the event, and what can be edited: `message`, `result`, or a call's `arguments`. */
  constructor(view, { at, call, edit = {} }) {
    Object.assign(this, { view, at, call });
    const [[kind, value] = []] = Object.entries(edit);
    this.kind = kind;
    this.edited = kind && (kind === "arguments" ? argumentsEdit(value) : textEdit(kind, value));
    this.message = kind === "message" ? null : h("textarea", { rows: 2, dir: "auto" });
  }

  async open() {
    const groups = await modelGroups(this.view.page);
    this.model = h("select", {}, h("option", { value: "" }, t("try.model.same")), groups.map(groupOf));
    const begun = await dialog(t("try.title"), (close) => this.#build(close));
    if (!begun) return;
    const { page, asked } = this.view;
    copyChoice(asked.session, begun.session, this.model.value || undefined);
    await page.conversation.open(begun.session);
    restoreFocus(null); // what had it was of the other branch
  }

  #build(close) {
    const go = h("button", { class: "primary" }, t("try.go"));
    const onsubmit = submitting(go, this.#outcome, async () => {
      const begun = await this.#send();
      if (begun) close(begun);
    });
    const cancel = button(t("dialog.cancel"), () => close());
    return h(
      "form",
      { class: "form try-out", onsubmit },
      h("p", { class: "faint" }, t("try.about", { at: this.at })),
      field(t("try.model"), this.model),
      this.edited?.element,
      this.message && field(t("try.message"), this.message, t("try.message.hint")),
      this.#outcome.element,
      dialogButtons(cancel, go),
    );
  }

  /** Raises Refused. */
  #send() {
    const body = { at: this.at };
    try {
      const edited = this.edited?.value() ?? null;
      if (edited !== null) body.edit = { [this.kind]: edited, call: this.call };
    } catch (error) {
      if (!error.field) throw error;
      this.#outcome.show(error.message, "problem");
      return void error.field.focus();
    }
    if (this.model.value) body.model = this.model.value;
    if (this.message?.value.trim()) body.message = this.message.value.trim();
    const headers = { prefer: "respond-async", "idempotency-key": randomKey() }; // the browser may send it twice
    return post(`/runs/${encodeURIComponent(this.view.asked.run)}/fork`, body, { headers });
  }
}

/** `value()` is null while nothing is edited. */
function argumentsEdit(given) {
  const form = editForm(given);
  const legend = h("legend", {}, t("try.arguments"));
  return { element: h("fieldset", { class: "try-arguments" }, legend, form.element), value: form.value };
}

function textEdit(kind, text) {
  const input = h("textarea", { rows: Math.min(10, Math.max(2, text.split("\n").length)), dir: "auto", value: text });
  const first = input.value; // as the browser normalises it
  const value = () => (input.value === first ? null : input.value);
  return { element: field(t(`try.${kind === "message" ? "asked" : "result"}`), input), value };
}
