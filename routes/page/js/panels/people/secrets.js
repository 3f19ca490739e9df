/** The secrets of the server, for admins: what each goes with, without its value; adding and removing. */

import { get, post, remove } from "../../feed/api.js";
import { h, icon, stack } from "../../dom/elements.js";
import { confirmButton, field, fillRows, Outcome, select, sendForm } from "../../dom/forms.js";
import { locale, t } from "../../dom/more_texts.js";

const ROLES = ["admin", "user"];
const parts = ({ value }, between) => value.trim().split(between).filter(Boolean);
const words = (input) => parts(input, /[\s,]+/);

/** The list and the form. Raises Refused. */
export async function secrets() {
  const list = h("ul", { class: "tokens" });
  const draw = async () => {
    const { secrets: rows } = await get("/secrets");
    fillRows(list, rows, (row) => secretRow(row, draw), t("secrets.none"));
  };
  await draw();
  return stack(h("p", { class: "faint" }, t("secrets.about")), list, form(draw));
}

function secretRow(row, draw) {
  const { name, env, hosts, paths, tools, role, source, used } = row;
  const outcome = new Outcome();
  const sure = t("secrets.remove.sure", { name });
  const away = async () => {
    await remove(`/secrets/${encodeURIComponent(name)}`);
    await draw();
  };
  const facts = [
    env ? `${env}: ${hosts.join(", ")} (${tools.join(", ")})` : [t("secrets.mcp"), ...hosts].join(", "),
    paths.join(", "),
    t("secrets.role.least", { role: t(`people.role.${role}`) }),
    source && t("secrets.source", { source }),
    used ? t("secrets.used", { date: new Date(used * 1000).toLocaleString(locale) }) : t("secrets.unused"),
  ];
  return h(
    "li",
    {},
    h(
      "span",
      { class: "person" },
      h("strong", { dir: "auto" }, name),
      h("span", { class: "faint", dir: "auto" }, facts.filter(Boolean).join("; ")),
    ),
    confirmButton(t("secrets.remove"), sure, t("secrets.remove.yes"), outcome, away),
    outcome.element,
  );
}

function form(draw) {
  const plain = { autocomplete: "off", spellcheck: "false", dir: "ltr" };
  const name = h("input", { ...plain, required: true, maxlength: 64 });
  const value = h("input", {
    ...plain,
    type: "password",
    autocomplete: "new-password",
    required: true,
    maxlength: 8192,
  });
  const env = h("input", { ...plain, maxlength: 128, placeholder: "GITHUB_TOKEN" });
  const hosts = h("input", { ...plain, placeholder: "api.github.com" });
  const paths = h("input", { ...plain, placeholder: "/repos/**, GET /user" });
  const tools = h("input", { ...plain, placeholder: "bash python" });
  const role = select(ROLES.map((one) => [one, t(`people.role.${one}`)]));
  const replace = h("input", { type: "checkbox" });
  const fields = [
    field(t("secrets.name"), name),
    field(t("secrets.value"), value, t("secrets.value.hint")),
    field(t("secrets.env"), env, t("secrets.env.hint")),
    field(t("secrets.hosts"), hosts),
    field(t("secrets.paths"), paths),
    field(t("secrets.tools"), tools),
    field(t("secrets.role"), role),
    h("div", { class: "notify-switch" }, h("label", {}, replace, h("span", {}, t("secrets.replace")))),
  ];
  const send = () =>
    post("/secrets", {
      name: name.value.trim(),
      value: value.value,
      hosts: words(hosts),
      paths: parts(paths, /\s*,\s*/), // a method and a space may be in front of each
      role: role.value,
      replace: replace.checked,
      ...(env.value.trim() && { env: env.value.trim() }),
      ...(words(tools).length && { tools: words(tools) }),
    });
  const add = h("button", { type: "submit" }, icon("plus"), t("secrets.add"));
  return sendForm(fields, add, send, (_, outcome) => draw().catch((error) => outcome.show(error.message, "problem")));
}
