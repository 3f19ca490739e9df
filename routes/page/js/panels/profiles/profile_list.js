/** The profiles that there are, and a form that adds one or replaces one of the same name. */

import { get, remove, request } from "../../feed/api.js";
import { h, icon, stack } from "../../dom/elements.js";
import { confirmButton, factList, field, fillRows, Outcome, select, sendForm } from "../../dom/forms.js";
import { t, ts } from "../../dom/more_texts.js";

const FROM = ts("profiles.origin", ["settings", "shared", "own"]);
const NAMES = ts("conversation.name", ["approval", "max_rounds", "tools", "disabled", "prompt"]);
const MODES = ["", "sandboxed", "ask", "deny"];

/** The list and the form. Raises Refused. */
export async function profiles(admin) {
  const list = h("ul", { class: "tokens" });
  const draw = async () => {
    const { profiles: rows } = await get("/profiles");
    fillRows(list, rows, (row) => profileRow(row, admin, draw), t("profiles.none"));
  };
  await draw();
  return stack(list, addForm(admin, draw));
}

const path = (name) => `/profiles/${encodeURIComponent(name)}`;

function profileRow({ name, source, options }, admin, draw) {
  const outcome = new Outcome();
  const away = async () => {
    await remove(path(name));
    await draw();
  };
  const { description, ...values } = options;
  const mine = source === "own" || (source === "shared" && admin);
  const rows = Object.entries(values).map(([option, value]) => [
    NAMES[option] ?? option.replaceAll("_", " "),
    written(value),
  ]);
  return h(
    "li",
    {},
    h("span", {}, h("strong", {}, name), h("span", { class: "faint" }, ` ${description || FROM[source]}`)),
    mine &&
      confirmButton(t("profiles.delete"), t("profiles.delete.sure", { name }), t("profiles.delete.yes"), outcome, away),
    factList(rows),
    outcome.element,
  );
}

const written = (value) => (Array.isArray(value) ? value.join(" ") || t("profiles.no_tools") : String(value));

function addForm(admin, draw) {
  const name = h("input", { required: true, maxlength: 64, autocomplete: "off", dir: "ltr" });
  const prompt = h("textarea", { rows: 3, maxlength: 16000, dir: "auto" });
  const tools = h("input", { autocomplete: "off", dir: "ltr" });
  const approval = select(MODES.map((value) => [value, t(`profiles.approval.${value || "usual"}`)]));
  const rounds = h("input", { type: "number", min: 1, max: 200 });
  const fields = [
    field(t("profiles.name"), name),
    field(t("profiles.instructions"), prompt),
    field(t("profiles.tools"), tools, t("profiles.tools.hint")),
    field(t("profiles.approval"), approval),
    field(t("profiles.rounds"), rounds),
  ];
  const send = () => {
    const patterns = tools.value.split(/\s+/).filter(Boolean);
    const body = {
      ...(prompt.value.trim() && { prompt: prompt.value.trim() }),
      ...(patterns.length && { tools: patterns }),
      ...(approval.value && { approval: approval.value }),
      ...(rounds.value && { max_rounds: Number(rounds.value) }),
      shared: admin,
    };
    return request("PUT", path(name.value.trim()), { body });
  };
  const save = h("button", { type: "submit" }, icon("plus"), t("profiles.save"));
  return sendForm(fields, save, send, async (_, outcome) => {
    outcome.show(t("profiles.saved"), "good");
    await draw();
  });
}
