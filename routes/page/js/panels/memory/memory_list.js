/** What is remembered of the person, in the settings: seen, searched, added, edited and deleted. */

import { get, patch, post, remove } from "../../feed/api.js";
import { formatDay } from "../../dom/clock.js";
import { announce, button, buttonRow, fill, h, icon, stack } from "../../dom/elements.js";
import { actionButton, confirmButton, field, Outcome, submitting } from "../../dom/forms.js";
import { t, ts } from "../../dom/more_texts.js";

const PAGE = 20;
const KINDS = ["fact", "preference", "event", "note", "lesson"];
const KIND_LABELS = ts("memory.kind", KINDS);

const pathOf = ({ id }) => `/memory/${encodeURIComponent(id)}`;

/** The search, the list with its pages, and the form that adds. Raises Refused. */
export async function memories() {
  const outcome = new Outcome();
  const list = h("ul", { class: "tokens", "aria-label": t("memory.list") });
  const count = h("p", { class: "faint", role: "status" });
  const words = h("input", { type: "search", maxlength: 1000, autocomplete: "off", dir: "auto" });
  const more = actionButton(t("memory.more"), outcome, () => draw(more.value));
  const draw = async (before = "") => {
    const query = new URLSearchParams({ limit: PAGE });
    if (words.value.trim()) query.set("q", words.value.trim());
    if (before) query.set("before", before);
    const answer = await get(`/memory?${query}`);
    if (!before) fill(list);
    list.append(...answer.memories.map((one) => row(one, draw)));
    if (!list.firstChild)
      list.append(h("li", { class: "faint" }, t(query.has("q") ? "memory.not_found" : "memory.none")));
    more.value = answer.next ?? "";
    more.hidden = !answer.next;
    const total = answer.total ? t("memory.count", { count: answer.total }) : "";
    fill(count, answer.enabled === false ? t("memory.off") : total);
  };
  const search = h("button", { type: "submit" }, t("memory.search"));
  const onsubmit = submitting(search, outcome, () => draw());
  const form = h("form", { class: "form", role: "search", onsubmit }, field(t("memory.search.field"), words), search);
  await draw();
  const removal = [t("memory.delete_all"), t("memory.delete_all.sure"), t("memory.delete_all.yes")];
  const all = confirmButton(...removal, outcome, () => removeAll(draw));
  return stack(form, count, list, more, outcome.element, addForm(draw), all);
}

async function removeAll(draw) {
  const { deleted } = await remove("/memory?all=true");
  announce(t("memory.deleted.count", { count: deleted }));
  await draw();
}

function row(one, draw) {
  const outcome = new Outcome();
  const item = h("li", {});
  const away = async () => {
    await remove(pathOf(one));
    announce(t("memory.deleted"));
    await draw();
  };
  const trust = async () => {
    await patch(pathOf(one), { untrusted: false });
    await draw();
  };
  const named = (key) => ({ "aria-label": t(key, { text: one.text }) });
  const edit = button(t("memory.edit"), () => fill(item, editForm(one, draw)), named("memory.edit.named"));
  const kind = KIND_LABELS[one.kind] ?? one.kind;
  const facts = [kind, formatDay(one.updated), ...one.labels, one.untrusted && t("memory.untrusted")];
  return fill(
    item,
    h("p", { dir: "auto" }, one.text),
    h("p", { class: "faint" }, facts.filter(Boolean).join(", ")),
    buttonRow(
      edit,
      one.untrusted && actionButton(t("memory.confirm"), outcome, trust, named("memory.confirm.named")),
      confirmButton(t("memory.delete"), t("memory.delete.sure"), t("memory.delete.yes"), outcome, away),
    ),
    outcome.element,
  );
}

function editForm(one, draw) {
  return memoryForm(one, t("memory.save"), async (body) => {
    await patch(pathOf(one), body);
    announce(t("memory.saved"));
    await draw();
  });
}

function addForm(draw) {
  const form = memoryForm({ text: "", kind: KINDS[0] }, t("memory.add"), async (body) => {
    await post("/memory", body);
    form.reset();
    announce(t("memory.added"));
    await draw();
  });
  return form;
}

function memoryForm(one, label, send) {
  const outcome = new Outcome();
  const text = h("textarea", { rows: 2, required: true, maxlength: 2000, dir: "auto" });
  text.value = one.text;
  const options = KINDS.map((kind) => h("option", { value: kind, selected: kind === one.kind }, KIND_LABELS[kind]));
  const kind = h("select", {}, options);
  const save = h("button", { type: "submit" }, one.id ? null : icon("plus"), label);
  const fields = [field(t(one.id ? "memory.text" : "memory.new"), text), field(t("memory.kind.field"), kind)];
  const onsubmit = submitting(save, outcome, () => send({ text: text.value, kind: kind.value }));
  return h("form", { class: "form", onsubmit }, fields, save, outcome.element);
}
