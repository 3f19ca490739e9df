/** What is remembered of the person, in the settings: seen, searched, added, edited and deleted. */

import { get, patch, post, remove } from "../../feed/api.js";
import { announce, fill, h, icon } from "../../dom/elements.js";
import { actionButton, confirmButton, field, formatNumber, Outcome, runOnce } from "../../dom/forms.js";

const PAGE = 20;
const KINDS = ["fact", "preference", "event", "note"];
const NONE = "Nothing is remembered.";
const NOT_FOUND = "No memory has to do with that.";
const OFF = "The memory is off: nothing new is remembered, and nothing is recalled.";
const MARKED = "from an untrusted source";

const pathOf = ({ id }) => `/memory/${encodeURIComponent(id)}`;
const day = (at) => new Date(at * 1000).toLocaleDateString([], { dateStyle: "medium" });

/** The search, the list with its pages, and the form that adds. Raises Refused. */
export async function memories() {
  const outcome = new Outcome();
  const list = h("ul", { class: "tokens", "aria-label": "Memories" });
  const count = h("p", { class: "faint", role: "status" });
  const words = h("input", { type: "search", maxlength: 1000, autocomplete: "off", dir: "auto" });
  const more = actionButton("Show more", outcome, () => draw(more.value));
  const draw = async (before = "") => {
    const query = new URLSearchParams({ limit: PAGE });
    if (words.value.trim()) query.set("q", words.value.trim());
    if (before) query.set("before", before);
    const answer = await get(`/memory?${query}`);
    if (!before) fill(list);
    list.append(...answer.memories.map((one) => row(one, draw)));
    if (!list.firstChild) list.append(h("li", { class: "faint" }, query.has("q") ? NOT_FOUND : NONE));
    more.value = answer.next ?? "";
    more.hidden = !answer.next;
    fill(count, answer.enabled === false ? OFF : answer.total ? `${formatNumber(answer.total)} in all` : "");
  };
  const search = h("button", { type: "submit" }, "Search");
  const form = h("form", { class: "form", role: "search" }, field("Search the memory", words), search);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    runOnce(search, outcome, () => draw());
  });
  await draw();
  const all = confirmButton("Delete all", "Delete all memories? This cannot be undone.", "Delete them", outcome, () =>
    removeAll(draw),
  );
  return h("div", { class: "stack" }, form, count, list, more, outcome.element, addForm(draw), all);
}

async function removeAll(draw) {
  const { deleted } = await remove("/memory?all=true");
  announce(`Deleted ${formatNumber(deleted)}.`);
  await draw();
}

function row(one, draw) {
  const outcome = new Outcome();
  const item = h("li", {});
  const away = async () => {
    await remove(pathOf(one));
    announce("Deleted.");
    await draw();
  };
  const trust = async () => {
    await patch(pathOf(one), { untrusted: false });
    await draw();
  };
  const name = { "aria-label": `Edit: ${one.text}` };
  const edit = h("button", { type: "button", ...name, onclick: () => fill(item, editForm(one, draw)) }, "Edit");
  return fill(
    item,
    h("p", { dir: "auto" }, one.text),
    h(
      "p",
      { class: "faint" },
      [one.kind, day(one.updated), ...one.labels, one.untrusted && MARKED].filter(Boolean).join(", "),
    ),
    h(
      "div",
      { class: "buttons" },
      edit,
      one.untrusted && actionButton("It is right", outcome, trust, { "aria-label": `It is right: ${one.text}` }),
      confirmButton("Delete", "Delete this memory?", "Delete it", outcome, away),
    ),
    outcome.element,
  );
}

function editForm(one, draw) {
  return memoryForm(one, "Save", async (body) => {
    await patch(pathOf(one), body);
    announce("Saved.");
    await draw();
  });
}

function addForm(draw) {
  const form = memoryForm({ text: "", kind: KINDS[0] }, "Remember this", async (body) => {
    await post("/memory", body);
    form.reset();
    announce("Remembered.");
    await draw();
  });
  return form;
}

function memoryForm(one, label, send) {
  const outcome = new Outcome();
  const text = h("textarea", { rows: 2, required: true, maxlength: 2000, dir: "auto" });
  text.value = one.text;
  const options = KINDS.map((kind) => h("option", { value: kind, selected: kind === one.kind }, kind));
  const kind = h("select", {}, options);
  const save = h("button", { type: "submit" }, one.id ? null : icon("plus"), label);
  const words = one.id ? "Text" : "New memory";
  const form = h("form", { class: "form" }, field(words, text), field("Kind", kind), save, outcome.element);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    runOnce(save, outcome, () => send({ text: text.value, kind: kind.value }));
  });
  return form;
}
