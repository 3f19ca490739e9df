/**
 * The changes of a run in a dialog: each file with its diff, and buttons that undo one of them or all. The same for a
 * branch that works in a folder of its own, with a button that takes its changes over into the workspace.
 */

import { hasOwnFolder, openInWorkspace } from "../cards/message_files.js";
import { get, post } from "../feed/api.js";
import { announce, button, buttonRow, dialog, fill, h } from "../dom/elements.js";
import { actionButton, confirmButton, Outcome, problemLine } from "../dom/forms.js";
import { t } from "../dom/more_texts.js";
import { unifiedDiff } from "../text/diff.js";
import { escapeLine } from "../text/exact_text.js";
import { undoChange } from "../workspace/requests.js";

const STATES = new Set(["open", "unavailable", "undoing", "undone"]); // which a sentence explains
const UNDOABLE = new Set(["kept", "undoing"]);
const OPEN_AT_FIRST = 5; // files whose diff is open

/** Shows what a run of the open session has changed, or only the file at `path`. */
export function openChanges({ run, session }, path = null) {
  const changes = new RunChanges(`/runs/${encodeURIComponent(run)}`, { only: path, opens: !hasOwnFolder(session) });
  return dialog(t("changes.title"), (close) => changes.build(close));
}

/** Shows what a branch has changed in its folder, to be taken over into the workspace. */
export function openTakeOver(session) {
  const changes = new BranchChanges(`/sessions/${encodeURIComponent(session)}`);
  return dialog(t("takeover.title"), (close) => changes.build(close));
}

class RunChanges {
  none = t("changes.none");

  /** `only`: the path of a file, or null; `opens`: files can be opened in the workspace. */
  constructor(path, { only = null, opens = false } = {}) {
    Object.assign(this, { only, opens });
    this.path = path;
    this.view = h("div", { class: "run-changes", "aria-live": "polite" }, t("loading.short"));
    this.outcome = new Outcome();
    this.undoAll = h("span", {});
    this.closer = button(t("dialog.close"), () => this.close());
  }

  build(close) {
    this.close = close;
    this.load();
    return [this.view, this.outcome.element, buttonRow(this.undoAll, this.closer)];
  }

  load() {
    get(`${this.path}/changes`).then(
      (report) => this.show(report),
      (error) => fill(this.view, this.failure(error)),
    );
  }

  failure(error) {
    return problemLine(error);
  }

  show(whole) {
    const report = this.only === null ? whole : partOf(whole, this.only);
    const canUndo = UNDOABLE.has(report.state) && report.files.length > 0;
    fill(this.view, this.content(report, canUndo));
    const words = [t("changes.undo"), t("changes.undo.question"), t("changes.undo.yes")];
    const undo = canUndo && this.only === null && confirmButton(...words, this.outcome, () => this.#undo({}));
    fill(this.undoAll, undo);
  }

  /** Undoes all, or the `paths` in `wanted`. */
  async #undo(wanted) {
    await this.send("undo", wanted, (report) => {
      this.show(report);
      announce(t("changes.undone"));
    });
  }

  /** Sends a POST request, which is refused as a whole if files have changed since. */
  async send(action, body, done) {
    try {
      done(await post(`${this.path}/${action}`, body));
      this.closer.focus();
    } catch (error) {
      this.view.querySelector(":scope > .problem")?.remove();
      this.view.prepend(...[conflicts(error.more?.files)].filter(Boolean));
      throw error;
    }
  }

  content({ state, note, files, more_files: more, left_out: left, undone_files: undone }, canUndo) {
    const words = [STATES.has(state) && t(`changes.state.${state}`), note].filter(Boolean).join(" ");
    const faint = (text) => h("p", { class: "faint" }, text);
    return [
      words && h("p", {}, escapeLine(words)),
      files.length || left?.length || undone?.length ? null : faint(this.none),
      files.map((file, at) => this.#row(file, at < OPEN_AT_FIRST, canUndo)),
      more ? faint(t("changes.more", { count: more })) : null,
      undone?.length ? faint(t("changes.undone_files", { files: undone.map(escapeLine).join(", ") })) : null,
      left?.length ? faint(t("changes.left")) : null,
      left?.length ? h("ul", {}, left.map(leftRow)) : null,
    ];
  }

  #row({ path, change, kind, diff }, open, canUndo) {
    const what = kind === "file" ? "" : ` ${t(`changes.kind.${kind}`)}`;
    const facts = h("span", { class: "faint" }, ` ${t(`changes.change.${change}`)}${what}`);
    const name = h("bdi", {}, escapeLine(path));
    const buttons = kind === "file" ? this.buttons(path, change, canUndo) : null;
    if (!diff) return h("div", {}, h("p", { class: "changed-path" }, name, facts), buttons);
    const shown = unifiedDiff(diff, escapeLine(path));
    return h("details", { open }, h("summary", {}, name, facts), buttons, shown);
  }

  buttons(path, change, canUndo) {
    const work = () => this.#undo({ paths: [path] });
    const question = t("changes.question_one", { path: escapeLine(path) });
    const words = t("changes.undo_one");
    const undo = canUndo && confirmButton(words, question, t("changes.yes_one"), this.outcome, work);
    const shown = this.opens && change !== "removed";
    const open = shown && button(t("changes.open"), () => openInWorkspace(path, this.close));
    return h("div", { class: "buttons changed-file-buttons" }, open, undo);
  }
}

class BranchChanges extends RunChanges {
  none = t("takeover.none");

  failure(error) {
    const hasFolder = error.status !== 404 && error.code !== "no_folder";
    return hasFolder ? super.failure(error) : h("p", {}, t("takeover.shared"));
  }

  /** Its files are not those of the workspace. */
  buttons() {
    return null;
  }

  show(report) {
    fill(this.view, this.content({ ...report, state: null }, false));
    const words = [t("takeover.do"), t("takeover.question"), t("takeover.yes")];
    const work = () => this.#takeOver(report.fingerprint);
    fill(this.undoAll, report.files.length > 0 && confirmButton(...words, this.outcome, work));
  }

  /** Where other changes have come since they were shown, they are shown again. */
  async #takeOver(fingerprint) {
    try {
      await this.send("take-over", { fingerprint }, ({ change }) => this.#taken(change));
    } catch (error) {
      if (error.status === 409 && !error.more.files?.length) this.load();
      throw error;
    }
  }

  /** The changes stay in view; they can be undone as long as the dialog is open. */
  #taken(change) {
    const undo = async () => {
      await undoChange(change);
      fill(this.undoAll);
      this.outcome.show(t("changes.undone"), "good");
      this.closer.focus();
      this.load();
    };
    fill(this.undoAll, change && actionButton(t("changes.undo"), this.outcome, undo));
    this.outcome.show(t("takeover.done"), "good");
  }
}

function partOf(report, path) {
  const files = report.files.filter((one) => one.path === path);
  const undone = report.undone_files.filter((one) => one === path);
  return { ...report, files, more_files: 0, left_out: [], undone_files: undone };
}

const leftRow = ({ path, reason }) =>
  h("li", {}, h("bdi", {}, escapeLine(path)), h("span", { class: "faint" }, `: ${reason}`));

/** Why an undo was refused, by file. */
function conflicts(files) {
  if (!files?.length) return null;
  const rows = files.map(({ path, reason }) => h("li", {}, h("bdi", {}, escapeLine(path)), `: ${escapeLine(reason)}`));
  return h("ul", { class: "problem" }, rows);
}
