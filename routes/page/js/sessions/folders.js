/** Folders of the list of conversations: added, renamed, deleted, and conversations moved into them. */

import { patch, post, remove as removeAt } from "../feed/api.js";
import { announce, dialog, h } from "../dom/elements.js";
import { Outcome, field, runOnce } from "../dom/forms.js";
import { t } from "../dom/more_texts.js";

const LONGEST = 80; // characters of a name
const NEW = "new"; // in the list of choices

const at = (folder) => `/folders/${encodeURIComponent(folder.id)}`;
const button = (label, onclick, kind = "") => h("button", { type: "button", class: kind, onclick }, label);

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
  const sure = await dialog(t("list.folder.delete.ask", { name: folder.name }), (close) => [
    h("p", {}, t("list.folder.delete.note")),
    h(
      "div",
      { class: "dialog-buttons" },
      h("button", { type: "button", autofocus: true, onclick: () => close(false) }, t("list.cancel")),
      button(t("list.delete"), () => close(true), "danger"),
    ),
  ]);
  if (!sure) return;
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
  const select = h(
    "select",
    { value: session.folder ?? "", autofocus: true },
    h("option", { value: "" }, t("list.move.none")),
    page.sessions.folders.map(({ id, name }) => h("option", { value: id }, name)),
    h("option", { value: NEW }, t("list.move.new")),
  );
  const title = t("list.move.title", { title: session.title || t("list.untitled") });
  const chosen = await dialog(title, (close) =>
    h(
      "form",
      {
        class: "stack",
        onsubmit: (event) => {
          event.preventDefault();
          close(select.value);
        },
      },
      field(t("list.move"), select),
      h(
        "div",
        { class: "dialog-buttons" },
        button(t("list.cancel"), () => close()),
        h("button", { class: "primary" }, t("list.move.action")),
      ),
    ),
  );
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
    return h(
      "form",
      { class: "stack", onsubmit },
      field(t("list.folder.name"), input),
      outcome.element,
      h(
        "div",
        { class: "dialog-buttons" },
        button(t("list.cancel"), () => close()),
        submit,
      ),
    );
  });
}

async function guarded(work) {
  try {
    await work();
  } catch (error) {
    announce(error.message, { urgent: true });
  }
}
