/** The panel of the project's instructions: what has changed in them since they were accepted, and the decision. */

import { get, post } from "../feed/api.js";
import { announce, buttonRow, fill, h, stack } from "../dom/elements.js";
import { actionButton, Outcome } from "../dom/forms.js";
import { changeDiff } from "../text/diff.js";
import { escapeLine, escapeText, exactBlock } from "../text/exact_text.js";
import { showPanel } from "./panel.js";
import { t, ts } from "../dom/more_texts.js";

const STATES = ts("project.state", ["new", "changed", "accepted", "declined", "unusable"]);

export function toggle(page, opener) {
  showPanel(page, "project", t("project.title"), () => content(), opener);
}

function content() {
  const list = h("ul", { class: "grants" });
  const outcome = new Outcome();
  const refresh = async () => {
    try {
      const { files } = await get("/project");
      fill(list, files.length ? files.map((file) => row(file, refresh)) : h("li", {}, t("project.none")));
    } catch (error) {
      outcome.show(error.message, "problem");
    }
  };
  refresh();
  return stack(h("p", { class: "faint" }, t("project.meaning")), list, outcome.element);
}

function row(file, refresh) {
  const outcome = new Outcome();
  const decide = (decision) => async () => {
    await post("/project", { path: file.path, digest: file.digest, decision });
    announce(t(decision === "accept" ? "project.accept.done" : "project.decline.done"));
    await refresh();
  };
  const label = (key) => ({ "aria-label": t(key, { file: escapeLine(file.path) }) });
  const first = { class: "primary", ...label("project.accept.named") };
  const accept = actionButton(t("project.accept"), outcome, decide("accept"), first);
  const decline = actionButton(t("project.decline"), outcome, decide("decline"), label("project.decline.named"));
  const buttons = [file.state === "accepted" ? null : accept, file.state === "declined" ? null : decline];
  const state = h("span", { class: "faint" }, STATES[file.state] ?? file.state);
  return h(
    "li",
    { class: "grant" },
    h("h3", {}, h("code", {}, escapeLine(file.path)), " ", state),
    textOf(file),
    file.state === "unusable" ? null : buttonRow(buttons),
    outcome.element,
  );
}

/** All of the text; of a changed one what differs. */
function textOf({ path, text, before, problem }) {
  if (problem) return h("p", { class: "approval-warning" }, escapeText(problem));
  return before === undefined
    ? exactBlock(text, path)
    : changeDiff(before, text, t("project.changes", { file: escapeLine(path) }));
}
