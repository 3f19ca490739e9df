/** The changes of a run in a dialog: each file with its diff, and a button that undoes all of them. */

import { get, post } from "../feed/api.js";
import { announce, dialog, fill, h } from "../dom/elements.js";
import { confirmButton, Outcome } from "../dom/forms.js";
import { unifiedDiff } from "../text/diff.js";
import { escapeLine } from "../text/exact_text.js";
import { t, ts } from "../dom/more_texts.js";

const STATES = ts("changes.state", ["open", "unavailable", "undoing", "undone"]);
const UNDOABLE = new Set(["kept", "undoing"]);
const OPEN_AT_FIRST = 5; // files whose diff is open

/** Shows what a run has changed. */
export function openChanges(run) {
  const path = `/runs/${encodeURIComponent(run)}`;
  const view = h("div", { class: "run-changes", "aria-live": "polite" }, t("loading.short"));
  const outcome = new Outcome();
  const undo = h("span", {});
  const show = (report) => {
    fill(view, content(report));
    const canUndo = UNDOABLE.has(report.state) && report.files.length > 0;
    fill(
      undo,
      canUndo
        ? confirmButton(t("changes.undo"), t("changes.undo.question"), t("changes.undo.yes"), outcome, undoAll)
        : null,
    );
  };
  const undoAll = async () => {
    try {
      show(await post(`${path}/undo`));
      announce(t("changes.undone"));
      closer.focus();
    } catch (error) {
      fill(view, conflicts(error.more?.files), view.firstChild ? [...view.childNodes] : null);
      throw error;
    }
  };
  const closer = h("button", { type: "button" }, t("dialog.close"));
  get(`${path}/changes`).then(show, (error) => {
    fill(view, h("p", { class: "problem", role: "alert" }, error.message));
  });
  return dialog(t("changes.title"), (close) => {
    closer.addEventListener("click", () => close());
    return [view, outcome.element, h("div", { class: "buttons" }, undo, closer)];
  });
}

function content({ state, note, files, more_files: more, left_out: left }) {
  const words = [STATES[state], note].filter(Boolean).join(" ");
  return [
    words && h("p", {}, escapeLine(words)),
    files.length || left?.length ? null : h("p", { class: "faint" }, t("changes.none")),
    files.map((file, at) => row(file, at < OPEN_AT_FIRST)),
    more ? h("p", { class: "faint" }, t("changes.more", { count: more })) : null,
    left?.length ? h("p", { class: "faint" }, t("changes.left")) : null,
    left?.length ? h("ul", {}, left.map(leftRow)) : null,
  ];
}

function row({ path, change, kind, diff }, open) {
  const facts = h("span", { class: "faint" }, ` ${change}${kind === "file" ? "" : ` ${kind}`}`);
  const name = h("bdi", {}, escapeLine(path));
  if (!diff) return h("p", { class: "changed-path" }, name, facts);
  return h("details", { open }, h("summary", {}, name, facts), unifiedDiff(diff, escapeLine(path)));
}

const leftRow = ({ path, reason }) =>
  h("li", {}, h("bdi", {}, escapeLine(path)), h("span", { class: "faint" }, `: ${reason}`));

/** Why an undo was refused, by file. */
function conflicts(files) {
  if (!files?.length) return null;
  const rows = files.map(({ path, reason }) => h("li", {}, h("bdi", {}, escapeLine(path)), `: ${escapeLine(reason)}`));
  return h("ul", { class: "problem" }, rows);
}
