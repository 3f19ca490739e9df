/** The panel of the project's instructions: what has changed in them since they were accepted, and the decision. */

import { get, post } from "../feed/api.js";
import { announce, fill, h } from "../dom/elements.js";
import { actionButton, Outcome } from "../dom/forms.js";
import { changeDiff } from "../text/diff.js";
import { escapeLine, escapeText, exactBlock } from "../text/exact_text.js";
import { showPanel } from "./panel.js";

const NONE = "The workspace has no instructions (AGENTS.md, .agents/skills).";
const WHY = "A model reads these files of the workspace as your instructions once you have accepted their text.";
const STATES = {
  __proto__: null,
  new: "new: not used until you accept it",
  changed: "changed: not used until you accept it",
  accepted: "accepted",
  declined: "declined: not used",
  unusable: "not usable",
};

export function toggle(page, opener) {
  showPanel(page, "project", "Instructions of the project", () => content(), opener);
}

function content() {
  const list = h("ul", { class: "grants" });
  const outcome = new Outcome();
  const refresh = async () => {
    try {
      const { files } = await get("/project");
      fill(list, files.length ? files.map((file) => row(file, refresh)) : h("li", {}, NONE));
    } catch (error) {
      outcome.show(error.message, "bad");
    }
  };
  refresh();
  return h("div", { class: "stack" }, h("p", { class: "faint" }, WHY), list, outcome.element);
}

function row(file, refresh) {
  const outcome = new Outcome();
  const decide = (decision) => async () => {
    await post("/project", { path: file.path, digest: file.digest, decision });
    announce(decision === "accept" ? "Accepted." : "Declined.");
    await refresh();
  };
  const label = (verb) => ({ "aria-label": `${verb} ${escapeLine(file.path)}` });
  const accept = actionButton("Accept", outcome, decide("accept"), { class: "primary", ...label("Accept") });
  const decline = actionButton("Decline", outcome, decide("decline"), label("Decline"));
  const buttons = [file.state === "accepted" ? null : accept, file.state === "declined" ? null : decline];
  const state = h("span", { class: "faint" }, STATES[file.state] ?? file.state);
  return h(
    "li",
    { class: "grant" },
    h("h3", {}, h("code", {}, escapeLine(file.path)), " ", state),
    textOf(file),
    file.state === "unusable" ? null : h("div", { class: "buttons" }, buttons),
    outcome.element,
  );
}

/** All of the text; of a changed one what differs. */
function textOf({ path, text, before, problem }) {
  if (problem) return h("p", { class: "approval-warning" }, escapeText(problem));
  return before === undefined ? exactBlock(text, path) : changeDiff(before, text, `Changes of ${escapeLine(path)}`);
}
