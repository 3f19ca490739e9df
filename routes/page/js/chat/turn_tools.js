/**
 * What can be done with a turn: edit its message, answer it again, compare models, watch it again. The work is loaded
 * when it is asked for.
 */

import { h, iconButton } from "../dom/elements.js";
import { loadOnce } from "../dom/forms.js";
import { Menu } from "../dom/menu.js";
import { t } from "../dom/texts.js";

const EDITABLE = ".user-message:not(.from-job)";

/** Below the message: the button that edits it, and the switch between branches. */
export function messageTools(view) {
  const act = loadOnce(load, ({ edit }) => edit(view));
  const button = iconButton(t("branch.edit"), "pencil", act, { class: "quiet edit" });
  return h("div", { class: "message-tools" }, isOfPerson(view) && button);
}

const load = () => import("./branching.js");

const isOfPerson = (view) => Boolean(view.element.querySelector(`:scope > ${EDITABLE}`));

/** Below the answer: a menu where a message of the person is above, and the button of the timeline. */
export function turnTools(view) {
  if (view.page.isPart) return null;
  const open = loadOnce(
    () => import("./replay/replay.js"),
    ({ Replay }) => Replay.open(view, timeline),
  );
  const timeline = iconButton(t("replay.open"), "clock", open, { class: "quiet again-menu", "aria-expanded": "false" });
  return h("span", { class: "again-tools" }, !view.page.readOnly && isOfPerson(view) && againMenu(view), timeline);
}

function againMenu(view) {
  const act = (does) => loadOnce(load, does);
  const takeOver = loadOnce(
    () => import("./run_changes.js"),
    ({ openTakeOver }) => openTakeOver(view.asked.session),
  );
  const button = iconButton(t("branch.again.menu"), "again", null, { class: "quiet again-menu" });
  const menu = new Menu(button, () => [
    [t("branch.again"), "again", act(({ again }) => again(view))],
    [t("branch.again.other"), "again", act(({ againWith }) => againWith(view))],
    [t("branch.compare"), "columns", act(({ compareTurn }) => compareTurn(view))],
    [t("try.open"), "right", () => tryFrom(view, { at: 1, edit: { message: view.asked.message.text } })],
    ...(view.isFork ? [[t("takeover.open"), "save", takeOver]] : []),
  ]);
  return [button, menu.element];
}

/** Opens the dialog for a branch that begins at an event of the run: see replay/try_from.js. */
export async function tryFrom(view, from) {
  const { TryDialog } = await import("./replay/try_from.js");
  new TryDialog(view, from).open();
}
