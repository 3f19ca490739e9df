/** Model files of the server's machine, for admins: adds, serves, stops and forgets them. */

import { get, post, remove } from "../../feed/api.js";
import { button, buttonRow, fill, h, icon, stack } from "../../dom/elements.js";
import {
  actionButton,
  confirmButton,
  field,
  formatNumber,
  KeyedRows,
  Outcome,
  select,
  sendForm,
} from "../../dom/forms.js";
import { refresh } from "../models.js";
import { openGetModel } from "./get_model.js";
import { t, ts } from "../../dom/more_texts.js";

const PATH = "/served-models";
const AGAIN_MS = 1_000; // between two requests while a model starts or stops
const MIB = 1 << 20;
const CACHES = ts("served.cache", ["f16", "q8_0", "q4_0"]);
const STATES = ts("served.state", ["off", "asleep", "starting", "ready", "failed"]);

/** The list and the form. Raises Refused. */
export async function servedModels(page) {
  const part = new ServedModels(page);
  await part.draw();
  return part.element;
}

class ServedModels {
  #page;
  #rows;
  #timer = null;

  constructor(page) {
    this.#page = page;
    this.list = h("ul", { class: "tokens", "aria-label": t("served.title") });
    this.none = h("p", { class: "faint" }, t("served.none"));
    this.form = h("div");
    this.#rows = new KeyedRows(this.list, (row) => this.#row(row));
    const more = button([icon("down"), t("get.title")], () => openGetModel(page, null));
    this.element = stack(this.none, this.list, buttonRow(more), this.form);
  }

  async draw() {
    const { models, memory, folders, files } = await get(PATH);
    this.none.hidden = models.length > 0;
    const rows = models.map(({ pid, in_use, restarts, ...row }) => row);
    this.#rows.show(rows, ({ name }) => name);
    if (!this.form.firstChild) fill(this.form, folders.length ? this.#add(files, memory) : advice());
    clearTimeout(this.#timer);
    if (models.some(({ state }) => state === "starting")) this.#timer = setTimeout(() => this.#again(), AGAIN_MS);
  }

  async #again() {
    if (!this.element.isConnected) return;
    try {
      await this.draw();
    } catch (error) {
      if (typeof error.status !== "number") throw error;
    }
  }

  /** Does something with a model, then shows what there is. */
  async #act(work) {
    await work();
    await Promise.all([this.draw(), refresh(this.#page)]);
  }

  #row(row) {
    const { name, model, quantisation, context, slots, memory, state, problem, downloaded } = row;
    const outcome = new Outcome();
    const path = `${PATH}/${encodeURIComponent(name)}`;
    const [action, word] = state === "off" ? ["serve", t("served.serve")] : ["stop", t("served.stop")];
    const toggle = actionButton(word, outcome, () => this.#act(() => post(`${path}/${action}`)));
    const away = () => this.#act(() => remove(path));
    const size = `${formatNumber(Math.round(memory.total / MIB))} MiB`;
    const tokens = `${slots > 1 ? `${slots} × ` : ""}${t("served.tokens", { count: context })}`;
    const about = [model, quantisation, tokens, size].filter(Boolean).join(" · ");
    const question = t(downloaded ? "served.remove.file" : "served.remove.sure", { name });
    if (problem) outcome.show(problem, "problem");
    const facts = h("span", { class: "faint" }, ` ${STATES[state] ?? state} · ${about}`);
    return h(
      "li",
      {},
      h("span", { dir: "auto" }, h("strong", {}, name), facts),
      toggle,
      confirmButton(t("served.remove"), question, t("served.remove.yes"), outcome, away),
      outcome.element,
    );
  }

  #add(files, { available }) {
    const file = h("input", { required: true, maxlength: 4096, list: "model-files", autocomplete: "off", dir: "ltr" });
    const options = files.map((path) => h("option", { value: path }));
    const name = h("input", { maxlength: 64, autocomplete: "off", spellcheck: "false", dir: "ltr" });
    const context = h("input", { type: "number", min: 512, max: 1 << 22, placeholder: "8192", dir: "ltr" });
    const cache = select(Object.entries(CACHES));
    const begin = h("input", { type: "checkbox" });
    const make = h("button", { type: "submit" }, icon("plus"), t("served.add"));
    const free = available === null ? null : t("served.free", { size: Math.round(available / MIB) });
    const fields = [
      field(t("served.file"), file, t("served.file.hint")),
      h("datalist", { id: "model-files" }, options),
      field(t("served.name"), name, t("served.name.hint")),
      field(t("served.context"), context, free),
      field(t("served.cache"), cache),
      h("label", { class: "check" }, begin, " ", t("served.begin")),
    ];
    const send = () => {
      const wish = { file: file.value.trim(), cache_type: cache.value, at_start: begin.checked };
      if (name.value.trim()) wish.name = name.value.trim();
      if (context.value) wish.context = Number(context.value);
      return post(PATH, wish);
    };
    return sendForm(fields, make, send, async ({ name: added }, outcome) => {
      outcome.show(t("served.added", { name: added }), "good");
      await this.draw().catch((error) => outcome.show(error.message, "problem"));
    });
  }
}

function advice() {
  const command = h("code", { dir: "ltr" }, "dragoman model add FILE.gguf");
  return h("p", { class: "faint" }, t("served.no_folder"), " ", command);
}
