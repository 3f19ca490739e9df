/** "Get a model": the server downloads one and serves it, then the page selects it. For admins. */

import { formatSize } from "../../cards/changed_files.js";
import { formatDuration } from "../../dom/clock.js";
import { announce, button, fill, h, icon, stack } from "../../dom/elements.js";
import { KeyedRows, Outcome, actionButton, field, sendForm } from "../../dom/forms.js";
import { get, post, remove } from "../../feed/api.js";
import { chooseModel, refresh } from "../models.js";
import { showPanel } from "../panel.js";
import { t, ts } from "../../dom/more_texts.js";

const PATH = "/served-models";
const STATES = ts("get.state", ["checking", "interrupted", "failed"]);
const awaited = new Set(); // names of the models that this page has requested: each is selected when it is there
let result = null; // the line of the open panel that says so

/** Opens the panel, or closes it. */
export function openGetModel(page, opener) {
  return showPanel(page, "get-model", t("get.title"), (watch) => getModel(page, watch), opener);
}

/** The form and the downloads; `watch(key, callback)` as in `showPanel`. */
export function getModel(page, watch) {
  if (!result) page.store.watch("downloads", (rows) => rows.forEach((row) => select(page, row)));
  result = new Outcome();
  const plain = { autocomplete: "off", spellcheck: "false", dir: "ltr", maxlength: 4096, placeholder: "hf:OWNER/REPO" };
  const source = h("input", { ...plain, required: true });
  const start = h("button", { type: "submit", class: "primary" }, icon("down"), t("get.start"));
  const list = h("ul", { class: "tokens", "aria-label": t("get.downloads") });
  const shown = new KeyedRows(list, (row) => downloadRow(row));
  watch("downloads", (rows) => {
    const open = rows.filter(({ state }) => state !== "done");
    list.hidden = !open.length;
    shown.show(open, ({ name }) => name);
  });
  const fields = [field(t("get.source"), source, t("get.source.hint"))];
  const form = sendForm(fields, start, () => begin(source.value), Boolean);
  return stack(h("p", { class: "faint" }, t("get.about")), suggestions(source), form, list, result.element);
}

/** Buttons that fill in the models which the server suggests. */
function suggestions(source) {
  const box = h("div", { class: "stack", role: "group", "aria-label": t("get.suggestions") });
  const offer = ({ source: wish, name, bytes, memory }) => {
    const choose = () => {
      source.value = wish;
      source.focus();
    };
    return button(t("get.offer", { name, size: formatSize(bytes), memory: formatSize(memory) }), choose);
  };
  get(PATH)
    .then((found) => fill(box, found.suggestions.map(offer)))
    .catch((error) => {
      if (typeof error.status !== "number") throw error;
      fill(box, h("p", { class: "problem" }, error.message));
    });
  return box;
}

async function begin(source) {
  const begun = await post(PATH, { source: source.trim(), serve: true });
  awaited.add(begun.name);
  return begun;
}

async function select(page, { name, state, model, problem }) {
  if (!awaited.has(name) || !["done", "failed"].includes(state)) return;
  awaited.delete(name);
  if (state === "failed") return void announce(problem, { urgent: true });
  await refresh(page);
  chooseModel(page, model);
  result.show(t("models.chosen", { model }), "good");
}

function downloadRow({ name, source, state, bytes, total, speed, left_s: left, problem }) {
  const outcome = new Outcome();
  const going = state === "downloading" || state === "checking";
  const size = total ? t("get.of", { done: formatSize(bytes), total: formatSize(total) }) : formatSize(bytes);
  const percent = total ? `${Math.floor((100 * bytes) / total)} %` : null;
  const rest = left === null ? null : t("get.left", { time: formatDuration(left) });
  const words = [STATES[state], percent, size, speed && `${formatSize(speed)}/s`, going && rest].filter(Boolean);
  const bar = { max: total ?? 1, value: total ? bytes : null, "aria-label": t("get.progress", { name }) };
  const away = actionButton(t(going ? "dialog.cancel" : "get.discard"), outcome, () =>
    remove(`${PATH}/${encodeURIComponent(name)}`),
  );
  if (problem) outcome.show(problem, "problem");
  return h(
    "li",
    {},
    h("span", { dir: "auto" }, h("strong", {}, name), h("span", { class: "faint" }, ` ${words.join(" · ")}`)),
    going && h("progress", bar),
    !going && actionButton(t("get.resume"), outcome, () => begin(source)),
    away,
    outcome.element,
  );
}
