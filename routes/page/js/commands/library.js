/** The prompt library: stored prompts of a person, used by `/name`; imported and exported as JSON. */

import { get, remove, request } from "../feed/api.js";
import { button, buttonRow, h, icon, stack } from "../dom/elements.js";
import { actionButton, confirmButton, field, fillRows, Outcome, runOnce, sendForm } from "../dom/forms.js";
import { saveText } from "../dom/download.js";
import { t } from "../dom/more_texts.js";
import { showPanel } from "../panels/panel.js";
import { escapeLine } from "../text/exact_text.js";
import { forgetPrompts, usePrompt } from "./prompts.js";

const MOST_BYTES = 4_000_000; // of a file that is imported
const MOST = 200;
const NAME = /^[a-z0-9][a-z0-9_-]{0,63}$/;

/** Opens the library, or closes it. */
export function toggle(page, opener) {
  return showPanel(page, "prompts", t("prompts.title"), () => content(page), opener);
}

function content(page) {
  const outcome = new Outcome();
  const list = h("ul", { class: "tokens" });
  const form = editForm(() => draw());
  const draw = async () => {
    forgetPrompts();
    const { prompts } = await get("/prompts");
    fillRows(list, prompts, (row) => promptRow(page, row, form, draw), t("prompts.none"));
  };
  draw().catch((error) => outcome.show(error.message, "problem"));
  const about = h("p", { class: "faint" }, t("prompts.about"));
  return stack(about, list, outcome.element, form.element, files(outcome, draw));
}

const path = (name) => `/prompts/${encodeURIComponent(name)}`;
const store = ({ name, about, text }) => request("PUT", path(name), { body: { text, about: about ?? "" } });

function promptRow(page, row, form, draw) {
  const outcome = new Outcome();
  const away = async () => {
    await remove(path(row.name));
    await draw();
  };
  const use = () => {
    page.panel.close();
    return usePrompt(page, row.name, row.text);
  };
  const label = (key) => ({ "aria-label": t(key, { name: row.name }) });
  const word = t("prompts.delete");
  const buttons = [
    actionButton(t("prompts.use"), outcome, use, label("prompts.use.named")),
    button(t("prompts.edit"), () => form.edit(row), label("prompts.edit.named")),
    confirmButton(word, t("prompts.delete.sure", { name: row.name }), word, outcome, away),
  ];
  return h(
    "li",
    {},
    h("span", {}, h("strong", {}, `/${row.name}`), h("span", { class: "faint", dir: "auto" }, ` ${row.about}`)),
    h("span", { class: "buttons" }, buttons),
    outcome.element,
  );
}

function editForm(changed) {
  const name = h("input", { required: true, maxlength: 64, pattern: "[a-z0-9][a-z0-9_\\-]*", autocomplete: "off" });
  name.setAttribute("dir", "ltr");
  const about = h("input", { maxlength: 200, autocomplete: "off", dir: "auto" });
  const text = h("textarea", { required: true, rows: 5, maxlength: 16_000, dir: "auto" });
  const save = h("button", { type: "submit" }, icon("plus"), t("prompts.save"));
  const fields = [
    field(t("prompts.name"), name, t("prompts.name.hint")),
    field(t("prompts.description"), about),
    field(t("prompts.text"), text, t("prompts.text.hint")),
  ];
  const send = async () => {
    const row = { name: name.value.trim(), about: about.value.trim(), text: text.value };
    await store(row);
    return row;
  };
  const element = sendForm(fields, save, send, async (row, outcome) => {
    outcome.show(t("prompts.saved", { name: row.name }), "good");
    await changed().catch((error) => outcome.show(error.message, "problem"));
  });
  const edit = (row) => {
    [name.value, about.value, text.value] = [row.name, row.about, row.text];
    text.focus();
  };
  return { element, edit };
}

function files(outcome, draw) {
  const pick = h("input", { type: "file", accept: ".json,application/json", hidden: true });
  pick.setAttribute("aria-label", t("prompts.load"));
  const load = actionButton(t("prompts.load"), outcome, () => pick.click());
  const save = actionButton(t("prompts.save_all"), outcome, async () => {
    const { prompts } = await get("/prompts");
    const rows = prompts.map(({ name, about, text }) => ({ name, about, text }));
    saveText(JSON.stringify({ prompts: rows }, null, 2), "prompts", "json", "application/json");
  });
  pick.addEventListener("change", () => {
    const [file] = pick.files;
    pick.value = "";
    if (file) runOnce(load, outcome, () => importFile(file, outcome, draw));
  });
  return buttonRow(load, save, pick);
}

/** Stores each prompt of the file; those of the same name are replaced. */
async function importFile(file, outcome, draw) {
  const rows = file.size <= MOST_BYTES ? rowsOf(await file.text()) : null;
  if (!rows) return outcome.show(t("prompts.load.wrong"), "problem");
  const wrong = rows.find(({ name }) => !NAME.test(name));
  if (wrong) return outcome.show(t("prompts.load.name", { name: shownName(wrong) }), "problem");
  for (const row of rows) await storeOf(row, draw);
  outcome.show(t("prompts.load.done", { count: rows.length }), "good");
  return draw();
}

/** Those before one that is refused stay, and are listed. */
async function storeOf(row, draw) {
  try {
    await store(row);
  } catch (error) {
    error.message = t("prompts.load.stopped", { name: shownName(row), reason: error.message });
    await draw().catch(() => null);
    throw error;
  }
}

const shownName = ({ name }) => escapeLine(name.slice(0, 64));

/** The prompts of the text of a file; null if it has none. */
function rowsOf(text) {
  try {
    const { prompts } = JSON.parse(text);
    const valid = (row) => typeof row?.name === "string" && typeof row.text === "string";
    return Array.isArray(prompts) && prompts.length && prompts.length <= MOST && prompts.every(valid) ? prompts : null;
  } catch {
    return null;
  }
}
