/** Folders of the list of conversations: added, renamed, deleted, and conversations moved into them. */

import { patch, post, remove as removeAt } from "../feed/api.js";
import { announce, button, confirmDialog, dialog, dialogButtons, h } from "../dom/elements.js";
import { Outcome, field, runOnce, select } from "../dom/forms.js";
import { t } from "../dom/more_texts.js";

const LONGEST = 80; // characters of a name
const NEW = "new"; // in the list of choices

const at = (folder) => `/folders/${encodeURIComponent(folder.id)}`;

/** Asks for a name and adds a folder; resolves with it, or undefined. */
export async function create(page) {
  const folder = await nameDialog(t("list.folder.new"), "", t("list.folder.add"), (name) => post("/folders", { name }));
  if (folder) page.sessions.refresh(0);
  return folder;
}

export async function rename(page, folder) {
  const save = (name) => patch(at(folder), { name });
  if (await nameDialog(t("list.folder.rename"), folder.name, t("list.folder.save"), save)) page.sessions.refresh(0);
}

export async function remove(page, folder) {
  const note = h("p", {}, t("list.folder.delete.note"));
  const words = { no: t("list.cancel"), yes: t("list.delete") };
  if (!(await confirmDialog(t("list.folder.delete.ask", { name: folder.name }), [note], words))) return;
  await guarded(async () => {
    await removeAt(at(folder));
    announce(t("list.folder.deleted"));
  });
  page.sessions.refresh(0);
}

/** Puts a conversation into a folder, or (null) into none. */
export async function put(page, session, folder) {
  await guarded(async () => {
    await patch(`/sessions/${encodeURIComponent(session)}`, { folder: folder?.id ?? null });
    announce(folder ? t("list.move.done", { name: folder.name }) : t("list.move.out"));
  });
  page.sessions.refresh(0);
}

/** Asks for the folder of a conversation: one that is there, none, or a new one. */
export async function move(page, session) {
  const folders = page.sessions.folders.map(({ id, name }) => [id, name]);
  const rows = [["", t("list.move.none")], ...folders, [NEW, t("list.move.new")]];
  const choice = select(rows, { value: session.folder ?? "", autofocus: true });
  const title = t("list.move.title", { title: session.title || t("list.untitled") });
  const chosen = await dialog(title, (close) => {
    const onsubmit = (event) => {
      event.preventDefault();
      close(choice.value);
    };
    const cancel = button(t("list.cancel"), () => close());
    const buttons = dialogButtons(cancel, h("button", { class: "primary" }, t("list.move.action")));
    return h("form", { class: "stack", onsubmit }, field(t("list.move"), choice), buttons);
  });
  if (chosen === undefined) return;
  const folder = chosen === NEW ? await create(page) : page.sessions.folders.find(({ id }) => id === chosen);
  if (chosen !== NEW || folder) await put(page, session.id, folder ?? null);
}

function nameDialog(title, name, label, save) {
  return dialog(title, (close) => {
    const outcome = new Outcome();
    const input = h("input", { maxlength: LONGEST, dir: "auto", value: name, autofocus: true, required: true });
    const submit = h("button", { class: "primary" }, label);
    const onsubmit = async (event) => {
      event.preventDefault();
      const saved = await runOnce(submit, outcome, () => save(input.value));
      if (saved) close(saved);
    };
    const cancel = button(t("list.cancel"), () => close());
    const entry = field(t("list.folder.name"), input);
    return h("form", { class: "stack", onsubmit }, entry, outcome.element, dialogButtons(cancel, submit));
  });
}

async function guarded(work) {
  try {
    await work();
  } catch (error) {
    announce(error.message, { urgent: true });
  }
}
