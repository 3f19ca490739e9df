/** What a person changes in the workspace: files put there, folders made, names given, entries removed and brought back. */

import { button, buttonRow, dialog, h } from "../dom/elements.js";
import { t } from "../dom/more_texts.js";
import { formatSize } from "../cards/changed_files.js";
import { escapeLine } from "../text/exact_text.js";
import { endingOf } from "../text/file_language.js";
import { folderOf, makeFolder, move, nameOf, upload, within } from "./requests.js";

const LONGEST = 200; // characters of a name

/** Asks for a name; resolves with it, undefined if the person thinks better of it. */
function askForName(title, label, value, yes) {
  const props = { type: "text", maxlength: LONGEST, dir: "auto", required: true, autocomplete: "off" };
  const input = h("input", { ...props, value });
  return dialog(title, (close) => {
    const onsubmit = (event) => {
      event.preventDefault();
      if (input.value.trim()) close(input.value.trim());
    };
    const cancel = button(t("workspace.cancel"), () => close());
    const buttons = buttonRow(h("button", { class: "primary" }, yes), cancel);
    const end = value.lastIndexOf(".");
    setTimeout(() => input.setSelectionRange(0, end > 0 ? end : value.length)); // the name without its ending
    return h("form", { class: "form", onsubmit }, h("label", { class: "entry" }, h("span", {}, label), input), buttons);
  });
}

/** Makes a folder; returns its path, or null. */
export async function newFolder(above) {
  const where = above ? t("workspace.folder.in", { folder: escapeLine(above) }) : t("workspace.folder.name");
  const name = await askForName(t("workspace.folder.new"), where, "", t("workspace.folder.create"));
  return name ? (await makeFolder(within(above, name))).path : null;
}

/** Gives an entry another name; returns its new path, or null. */
export async function rename({ path }) {
  const old = nameOf(path);
  const title = t("workspace.rename.title", { name: escapeLine(old) });
  const name = await askForName(title, t("workspace.rename.label"), old, t("workspace.rename"));
  return name && name !== old ? (await move(path, within(folderOf(path), name))).path : null;
}

/** Puts files into a folder, one after the other; `say(words)` reports. Returns the paths, and what was replaced. */
export async function uploadAll(files, folder, most, say) {
  const done = [],
    changes = [];
  let decided = null;
  for (const [at, file] of [...files].entries()) {
    if (file.size > most) {
      throw refusal(t("workspace.upload.large", { name: escapeLine(file.name), most: formatSize(most) }));
    }
    say(t("workspace.upload.progress", { at: at + 1, count: files.length, name: escapeLine(file.name) }));
    const path = within(folder, file.name);
    let answer = await tried(path, file, decided ?? "refuse");
    if (!answer) {
      const choice = await askAboutConflict(path, files.length - at - 1);
      if (!choice) break;
      if (choice.all) decided = choice.conflict;
      if (choice.conflict !== "skip") answer = await upload(path, file, choice.conflict);
    }
    if (answer) done.push(answer.path);
    if (answer?.change) changes.push(answer.change);
  }
  return { done, changes };
}

/** Saves a text under a name that is asked for; returns its path, or null. */
export async function saveText(text, language, say) {
  const name = `code.${endingOf(language.toLowerCase())}`;
  const given = await askForName(t("code.save"), t("code.save.path"), name, t("document.save"));
  const path = given?.replace(/(^|\/)\.{0,2}(?=\/|$)/g, ""); // nothing is above the workspace
  if (!path) return null;
  const file = new File([text.replace(/\n?$/, "\n")], nameOf(path));
  return (await uploadAll([file], folderOf(path), Infinity, say)).done[0] ?? null;
}

const refusal = (words) => Object.assign(new Error(words), { status: 0 });

/** The answer to an upload; null if there is something of that name. */
async function tried(path, file, conflict) {
  if (conflict === "skip") conflict = "refuse";
  try {
    return await upload(path, file, conflict);
  } catch (error) {
    if (error.code === "file_exists") return null;
    if (error.status === 0 && error.code === "offline") {
      throw refusal(t("workspace.upload.failed", { name: escapeLine(file.name), reason: error.message }));
    }
    throw error;
  }
}

/** Resolves with `{conflict, all}`, undefined to stop. */
function askAboutConflict(path, left) {
  const title = t("workspace.conflict", { name: escapeLine(path) });
  return dialog(title, (close) => {
    const all = h("input", { type: "checkbox" });
    const choose = (conflict) => () => close({ conflict, all: all.checked });
    const same = left ? h("label", { class: "tick" }, all, t("workspace.conflict.all", { count: left })) : null;
    return [
      h("p", {}, t("workspace.conflict.hint")),
      same,
      buttonRow(
        button(t("workspace.conflict.both"), choose("keep_both"), { class: "primary" }),
        button(t("workspace.conflict.replace"), choose("replace"), { class: "danger" }),
        left ? button(t("workspace.conflict.skip"), choose("skip")) : null,
        button(t("workspace.cancel"), () => close()),
      ),
    ];
  });
}
