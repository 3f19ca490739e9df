/** What can be done with a turn: edit its message, answer it again, compare models. The work is loaded when it is asked for. */

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

/** Below the answer: a menu; null where no message of the person is above. */
export function againMenu(view) {
  if (!isOfPerson(view)) return null;
  const act = (does) => loadOnce(load, does);
  const button = iconButton(t("branch.again.menu"), "again", null, { class: "quiet again-menu" });
  const menu = new Menu(button, () => [
    [t("branch.again"), "again", act(({ again }) => again(view))],
    [t("branch.again.other"), "again", act(({ againWith }) => againWith(view))],
    [t("branch.compare"), "columns", act(({ compareTurn }) => compareTurn(view))],
  ]);
  return h("span", { class: "again-tools" }, button, menu.element);
}
