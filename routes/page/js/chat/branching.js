/** Branches of the open conversation: begun by an edited message or another answer, and switched at the turn where they part. */

import { announce, button, dialog, dialogButtons, h, iconButton, restoreFocus } from "../dom/elements.js";
import { loadOnce, Problem } from "../dom/forms.js";
import { Menu } from "../dom/menu.js";
import { t } from "../dom/more_texts.js";
import { writeStored } from "../dom/storage.js";
import { post } from "../feed/api.js";
import { copyChoice, currentModel, refresh } from "../panels/models.js";
import { randomKey } from "./sender.js";

/** Forks a session before a run. Returns the new session. Raises Refused. */
export async function fork(session, run, model) {
  const headers = { "idempotency-key": randomKey() }; // the browser may send it twice
  const { id } = await post(`/sessions/${encodeURIComponent(session)}/fork`, { before: run }, { headers });
  copyChoice(session, id, model);
  return id;
}

/** The field of POST /chat that sends the files of a turn again. */
export const filesOf = ({ message, run }) => (message.attachments?.length ? { files_of: run } : {});

/** Replaces the message of a turn by a form; sending it begins a branch. */
export function edit(view) {
  const message = view.element.querySelector(":scope > .user-message");
  const tools = view.element.querySelector(":scope > .message-tools");
  if (message.hidden) return;
  const text = h("textarea", { "aria-label": t("branch.edit"), dir: "auto", value: view.asked.message.text });
  const problem = new Problem();
  const send = h("button", { class: "primary" }, t("composer.send"));
  const close = () => {
    form.remove();
    message.hidden = tools.hidden = false;
    restoreFocus(tools.querySelector(".edit"));
  };
  const onsubmit = async (event) => {
    event.preventDefault();
    if (send.disabled || !text.value.trim()) return;
    send.disabled = true;
    problem.show("");
    try {
      await sendAgain(view, { words: text.value.trim() });
    } catch (error) {
      problem.show(error.message);
      send.disabled = false;
      text.focus();
    }
  };
  const onkeydown = (event) => {
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && !event.shiftKey && !event.altKey) form.requestSubmit();
    else return;
    event.preventDefault();
    event.stopPropagation(); // Escape in the page closes more
  };
  const files = view.asked.message.attachments?.length;
  const buttons = h("div", { class: "edit-buttons" }, button(t("branch.cancel"), close), send);
  const more = files ? ` ${t("branch.edit.files", { count: files })}` : "";
  const note = h("p", { class: "faint" }, t("branch.edit.note"), more);
  const form = h("form", { class: "edit-message", onsubmit, onkeydown }, text, problem.element, note, buttons);
  message.hidden = tools.hidden = true;
  message.after(form);
  text.rows = Math.min(12, Math.max(2, text.value.split("\n").length));
  text.focus();
  text.setSelectionRange(text.value.length, text.value.length);
}

/** Answers a turn again, in a branch of its own. */
export const again = (view, model) => guarded(() => sendAgain(view, { model }));

/** The same with a model that the person chooses. */
export async function againWith(view) {
  const { page } = view;
  const chosen = await chooseModels(page, t("branch.again.title"), t("branch.again"), [t("branch.model")]);
  if (chosen) again(view, chosen[0]);
}

/** Compares the answers of two models to the message of a turn. */
export async function compareTurn(view) {
  const { page } = view;
  const chosen = await chooseCompared(page);
  if (!chosen) return;
  const session = page.store.get("session");
  await guarded(async () => {
    const forks = [await fork(session, view.asked.run, chosen[0]), await fork(session, view.asked.run, chosen[1])];
    await page.conversation.open(forks[0]);
    await compareForks(page, view.asked, forks, chosen);
  });
}

/** Sends the text of the message box to two models. */
export async function compareDraft(page) {
  const chosen = await chooseCompared(page);
  if (!chosen) return;
  const before = page.conversation.latest;
  await page.composer.submit({ model: chosen[0], steer: false });
  const view = page.conversation.latest;
  if (!view?.asked.run || view === before) return; // the message box says why
  await guarded(async () => {
    const { session, run } = view.asked;
    copyChoice(null, session, chosen[0]);
    page.store.set({ model: chosen[0] });
    const other = await fork(session, run, chosen[1]);
    const { run: second } = await begin(page, other, view.asked, chosen[1]);
    show(page, view.asked.message.text, [
      { session, run, model: chosen[0] },
      { session: other, run: second, model: chosen[1] },
    ]);
  });
}

async function compareForks(page, asked, forks, models) {
  const runs = [await begin(page, forks[0], asked, models[0]), await begin(page, forks[1], asked, models[1])];
  const columns = runs.map(({ run }, at) => ({ session: forks[at], run, model: models[at] }));
  show(page, asked.message.text, columns);
}

async function show(page, words, columns) {
  const { Comparison } = await import("./compare.js");
  new Comparison(page, words, columns);
}

/** Begins a run without showing it. Raises Refused. */
function begin(page, session, asked, model) {
  const body = { message: asked.message.text, session, model, when_busy: "queue", ...page.composer.fields };
  const headers = { prefer: "respond-async", "idempotency-key": randomKey() };
  return post("/chat", { ...body, ...filesOf(asked) }, { headers });
}

async function sendAgain(view, { words, model }) {
  const { page, asked } = view;
  const text = words ?? asked.message.text;
  const session = page.store.get("session");
  await page.conversation.open(await fork(session, asked.run, model));
  restoreFocus(null); // what had it was of the other branch
  const failed = await page.composer.send(text, filesOf(asked));
  if (failed) page.composer.fill(text);
}

/** Runs what a menu has begun; a failure is shown where messages are. */
async function guarded(doing) {
  try {
    await doing();
  } catch (error) {
    if (typeof error.status !== "number") throw error;
    dialog(t("branch.failed"), (close) => [
      h("p", { dir: "auto" }, error.message),
      dialogButtons(button(t("branch.close"), () => close(), { autofocus: true })),
    ]);
  }
}

const chooseCompared = (page) =>
  chooseModels(page, t("branch.compare.title"), t("branch.compare.go"), [t("branch.first"), t("branch.second")]);

/** A dialog with a choice of models for each label. Resolves with their names, or undefined. */
async function chooseModels(page, title, action, labels) {
  const groups = await modelGroups(page);
  const names = groups.flatMap(({ name, models }) => models.map((one) => `${name}/${one.name}`));
  const now = currentModel(page);
  const own = names.indexOf(names.find((name) => name === `${now.endpoint}/${now.name}`) ?? names[0]);
  return dialog(title, (close) => {
    const selects = labels.map((label, at) => {
      const other = labels.length === 1 || at === 1;
      const select = h("select", {}, groups.map(groupOf));
      select.selectedIndex = names.length ? (own + (other ? 1 : 0)) % names.length : -1;
      return h("label", { class: "model-choice" }, h("span", {}, label), select);
    });
    const values = () => selects.map((label) => label.querySelector("select").value);
    const cancel = button(t("branch.cancel"), () => close());
    const go = button(action, () => close(values()), { class: "primary", disabled: !names.length });
    const hint = names.length < 2 && h("p", { class: "faint" }, t("branch.one_model"));
    return [...selects, hint, dialogButtons(cancel, go)].filter(Boolean);
  });
}

/** The endpoints that have models, fetched if need be. */
export async function modelGroups(page) {
  if (!page.store.get("endpoints")) await refresh(page);
  const { endpoints = [] } = page.store.get("endpoints") ?? {};
  return endpoints.filter(({ models }) => models?.length);
}

export function groupOf({ name, models }) {
  const options = models.map((one) => h("option", { value: `${name}/${one.name}` }, one.name));
  return h("optgroup", { label: name }, options);
}

/** Shows the switch at each turn at which the open conversation has other branches. */
export function mark(page, views, partings) {
  for (const view of views) {
    const parting = partings.find(({ turns }) => turns.some(({ run }) => run === view.asked.run));
    const tools = view.element.querySelector(":scope > .message-tools");
    if (tools) switchIn(page, tools, view, parting);
  }
}

function switchIn(page, tools, view, parting) {
  const shown = tools.querySelector(".branch-switch");
  const turns = parting?.turns ?? [];
  const at = turns.findIndex(({ run }) => run === view.asked.run);
  const key = turns.map(({ run, session }) => `${run} ${session}`).join();
  if ((shown?.dataset.turns ?? "") === key) return;
  const focused = shown?.contains(document.activeElement) && document.activeElement.className;
  shown?.remove();
  if (turns.length < 2) return;
  const step = (by, sign, name) => {
    const goes = turns[at + by];
    const props = { class: `quiet branch-${sign}`, disabled: !goes };
    return iconButton(name, sign, () => goTo(page, view, goes, sign), props);
  };
  const count = h("span", { class: "branch-count" }, t("branch.count", { at: at + 1, of: turns.length }));
  const onkeydown = ({ key: pressed }) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[pressed] ?? 0;
    if (by && turns[at + by]) goTo(page, view, turns[at + by], by < 0 ? "left" : "right");
  };
  const parts = [step(-1, "left", t("branch.previous")), count, step(1, "right", t("branch.next"))];
  const original = turns.find(({ run }) => run === turns[at]?.parent) ?? turns[0]; // it may be gone
  const props = { class: "branch-switch", role: "group", "aria-label": t("branch.branches"), dataset: { turns: key } };
  const element = h("div", { ...props, onkeydown }, parts, at > 0 && branchMenu(page, view, original));
  tools.append(element);
  if (focused) element.querySelector(`.${focused.split(" ").at(-1)}:enabled, button:enabled`)?.focus();
}

/** What can be done with a branch and the conversation that it has come from. */
function branchMenu(page, view, original) {
  const session = page.store.get("session");
  const own = { run: view.asked.run, session };
  const button = iconButton(t("branch.more"), "more", null, { class: "quiet branch-more" });
  const parted = () => import("./replay/parted.js");
  const compare = loadOnce(parted, ({ openParted }) => openParted(page, original, own));
  const takeOver = loadOnce(
    () => import("./run_changes.js"),
    ({ openTakeOver }) => openTakeOver(session),
  );
  const menu = new Menu(button, () => [
    [t("branch.parted"), "columns", compare],
    ...(view.isFork ? [[t("takeover.open"), "save", takeOver]] : []),
  ]);
  return [button, menu.element];
}

/** Opens another branch with its turn at the place of this one. */
async function goTo(page, view, { run, session }, sign) {
  const offset = view.element.getBoundingClientRect().top - page.conversation.element.getBoundingClientRect().top;
  writeStored(`place.${session}`, { run, offset: Math.round(offset) });
  await page.conversation.open(session);
  const opened = page.conversation.run(run);
  const buttons = opened?.element.querySelector(":scope > .message-tools > .branch-switch");
  (buttons?.querySelector(`.branch-${sign}:enabled`) ?? buttons?.querySelector("button:enabled"))?.focus({
    preventScroll: true,
  });
  announce(buttons?.querySelector(".branch-count").textContent ?? "");
}
