/** The suggestions of the model for a document: each a diff that the person accepts or rejects. */

import { post } from "../feed/api.js";
import { announce, buttonRow, fill, h } from "../dom/elements.js";
import { actionButton, Outcome } from "../dom/forms.js";
import { changeDiff } from "../text/diff.js";
import { escapeProse } from "../text/escape_invisible.js";
import { path } from "./document_text.js";
import { t } from "../dom/more_texts.js";

/** Shows the open suggestions in `element`; `decided()` is called after each decision. */
export function showSuggestions(element, { id, suggestions }, decided) {
  element.hidden = suggestions.length === 0;
  const rows = suggestions.map((one) => rowOf(id, one, decided));
  fill(element, h("h3", {}, t("document.suggestions", { count: suggestions.length })), rows);
}

function rowOf(id, { number, old, new: text, reason }, decided) {
  const outcome = new Outcome();
  const decide = async (decision) => {
    await post(`${path(id)}/suggestions/${number}`, { decision });
    announce(t(decision === "accept" ? "document.accepted" : "document.rejected"));
    await decided();
  };
  const label = t("document.suggestion.label", { number: String(number) });
  return h(
    "div",
    { class: "suggestion", role: "group", "aria-label": label },
    reason && h("p", { dir: "auto" }, escapeProse(reason)),
    changeDiff(old, text, label),
    buttonRow(
      actionButton(t("document.accept"), outcome, () => decide("accept"), { class: "primary" }),
      actionButton(t("document.reject"), outcome, () => decide("reject")),
    ),
    outcome.element,
  );
}
