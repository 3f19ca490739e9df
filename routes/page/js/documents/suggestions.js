/** The suggestions of the model for a document: each a diff that the person accepts or rejects. */

import { post } from "../feed/api.js";
import { announce, fill, h } from "../dom/elements.js";
import { actionButton, Outcome } from "../dom/forms.js";
import { changeDiff } from "../text/diff.js";
import { escapeProse } from "../text/escape_invisible.js";
import { path } from "./document_text.js";

/** Shows the open suggestions in `element`; `decided()` is called after each decision. */
export function showSuggestions(element, { id, suggestions }, decided) {
  element.hidden = suggestions.length === 0;
  const title = suggestions.length === 1 ? "A suggestion" : `${suggestions.length} suggestions`;
  fill(element, h("h3", {}, title), ...suggestions.map((one) => rowOf(id, one, decided)));
}

function rowOf(id, { number, old, new: text, reason }, decided) {
  const outcome = new Outcome();
  const decide = async (decision) => {
    await post(`${path(id)}/suggestions/${number}`, { decision });
    announce(decision === "accept" ? "Accepted." : "Rejected.");
    await decided();
  };
  return h(
    "div",
    { class: "suggestion", role: "group", "aria-label": `Suggestion ${number}` },
    reason && h("p", { dir: "auto" }, escapeProse(reason)),
    changeDiff(old, text, `Suggestion ${number}`),
    h(
      "div",
      { class: "buttons" },
      actionButton("Accept", outcome, () => decide("accept"), { class: "primary" }),
      actionButton("Reject", outcome, () => decide("reject")),
    ),
    outcome.element,
  );
}
