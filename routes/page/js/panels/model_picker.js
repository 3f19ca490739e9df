/** The list of models by endpoint; admins see the state of endpoints and can add others. */

import { remove } from "../feed/api.js";
import { openConnect } from "./connect_model.js";
import { button, fill, h, icon } from "../dom/elements.js";
import { collapsible, Outcome, KeyedRows, confirmButton, loadOnce } from "../dom/forms.js";
import { currentModel, chooseModel, refresh } from "./models.js";
import { showPanel } from "./panel.js";
import { t, ts } from "../dom/more_texts.js";

const MANY = 8; // models, from which on there is a search field
const UNTESTED = ["scripted", "anthropic"]; // kinds that do not speak chat completions
const MOST = 200; // of an endpoint that are drawn at a time

/** Opens the picker, or closes it. */
export function toggle(page, opener) {
  refresh(page);
  return showPanel(page, "models", t("models.title"), (watch) => new Picker(page, opener, watch).element, opener);
}

class Picker {
  #page;
  #opener;
  #rows;
  #words = "";

  constructor(page, opener, watch) {
    this.#page = page;
    this.#opener = opener;
    const words = { placeholder: t("models.search"), "aria-label": t("models.search") };
    this.search = h("input", { type: "search", ...words, oninput: () => this.#find() });
    this.search.addEventListener("keydown", (event) => event.key === "ArrowDown" && this.#first(event));
    this.problem = h("p", { class: "problem", hidden: true });
    this.none = h("p", { class: "faint", hidden: true });
    this.list = h("div", { class: "picks", role: "radiogroup", "aria-label": t("models.of_conversation") });
    this.#rows = new KeyedRows(this.list, (row) => this.#section(row));
    const about = h("p", { class: "faint" }, t("models.applies"));
    this.element = h("div", { class: "models" }, about, this.search, this.problem, this.list, this.none);
    if (page.store.get("me")?.role === "admin") {
      const connect = [icon("plus"), t("models.connect")];
      this.element.append(button(connect, () => openConnect(page, opener), { class: "primary" }));
      this.element.append(collapsible(t("models.files"), () => this.#files()));
    }
    watch("endpoints", () => this.#draw());
    watch("model", () => this.#mark());
  }

  /** What serves model files, loaded when it is opened. */
  #files() {
    const box = h("div", {}, h("p", { class: "faint", role: "status" }, t("loading.short")));
    import("./serving/served_models.js")
      .then(({ servedModels }) => servedModels(this.#page))
      .then((element) => fill(box, element))
      .catch((error) => {
        if (typeof error.status !== "number") throw error;
        fill(box, h("p", { class: "problem" }, error.message));
      });
    return box;
  }

  #draw() {
    const { endpoints, aliases, problem } = this.#page.store.get("endpoints");
    const server = this.#page.store.get("server") ?? {};
    this.problem.hidden = !problem;
    fill(this.problem, problem);
    this.search.hidden = endpoints.reduce((sum, one) => sum + one.models.length, 0) <= MANY;
    const own = [{ value: "", name: t("models.default"), note: `${server.model} · ${server.endpoint}` }];
    for (const [name, meant] of Object.entries(aliases)) own.push({ value: name, name, note: meant });
    const words = this.#words;
    const others = endpoints.map((one) => ({ key: one.name, ...withoutCountdowns(one), words }));
    this.#rows.show([{ key: "", own, words }, ...others], ({ key }) => key);
    this.#mark();
  }

  #find() {
    this.#words = this.search.value.trim().toLowerCase();
    this.#draw();
    const found = this.list.querySelectorAll("input").length;
    this.none.hidden = found > 0;
    fill(this.none, t("models.none", { words: this.search.value.trim() }));
  }

  #first(event) {
    event.preventDefault();
    this.list.querySelector("input")?.focus();
  }

  #mark() {
    const picked = this.#page.store.get("model") ?? "";
    for (const input of this.list.querySelectorAll("input")) input.checked = input.value === picked;
  }

  #section(row) {
    const fits = ({ name, note = "" }) => `${row.key}/${name} ${note}`.toLowerCase().includes(this.#words);
    if (row.own) {
      const picks = row.own.filter(fits).map((one) => this.#pick(one));
      return h("section", { class: "endpoint" }, picks);
    }
    const models = (row.models.length ? row.models : [{ name: row.name, any: true }]).filter(fits);
    const drawn = models.slice(0, MOST).map((one) => this.#pick(described(row.name, one)));
    const more = models.length - drawn.length;
    const head = h("h3", { dir: "auto" }, row.name, row.kind !== row.name && h("span", { class: "faint" }, row.kind));
    return h(
      "section",
      { class: "endpoint", hidden: !models.length },
      head,
      about(row),
      drawn,
      more > 0 && h("p", { class: "faint" }, t("models.more", { count: more })),
      row.url && !UNTESTED.includes(row.kind) && this.#examination(row),
      row.origin === "added" && this.#removal(row.name),
    );
  }

  #pick({ value, name, note, signs = [] }) {
    const onchange = () => chooseModel(this.#page, value || null);
    const input = h("input", { type: "radio", name: "model", value, onchange });
    const words = h("span", { class: "pick-name", dir: "auto" }, name);
    const marks = signs.map((sign) => h("span", { class: "sign" }, sign));
    const about = h("span", { class: "faint pick-note", dir: "auto" }, note);
    return h("label", { class: "pick" }, input, words, about, marks);
  }

  #examination({ name, models }) {
    const names = models.map((one) => one.name);
    const open = loadOnce(
      () => import("./serving/examination.js"),
      ({ openExamination }) => openExamination(this.#page, name, names, this.#opener),
    );
    return h("div", {}, button(t("models.examine"), open));
  }

  #removal(name) {
    const outcome = new Outcome();
    const away = async () => {
      await remove(`/endpoints/${encodeURIComponent(name)}`);
      if (currentModel(this.#page).endpoint === name && this.#page.store.get("model")) chooseModel(this.#page, null);
      await refresh(this.#page);
    };
    const question = t("models.remove.question", { name });
    const removing = confirmButton(t("models.remove"), question, t("models.remove.yes"), outcome, away);
    return h("div", {}, removing, outcome.element);
  }
}

/** Without fields that change every second, so that a row is only redrawn for visible changes. */
function withoutCountdowns({ back_in_s, resting, under_way, waiting, ...rest }) {
  return rest;
}

function described(endpoint, { name, window, abilities = [], any }) {
  const has = (ability) => abilities.find((one) => one.name === ability)?.value === true;
  const signs = ["images", "pdf", "tools"].map((one) => has(one) && t(`models.ability.${one}`));
  const note = any ? t("models.any") : window ? t("usage.tokens", { count: window }) : "";
  return { value: any ? name : `${endpoint}/${name}`, name, note, signs: signs.filter(Boolean) };
}

const STATES = { ok: null, ...ts("models.state", ["cooling", "dead", "unusable"]) };

/** Details of an endpoint, for admins. */
function about({ url, state, problem, last_error: error }) {
  if (!url) return null;
  const bad = problem ?? STATES[state] ?? null;
  return [
    url.includes("//") && h("p", { class: "faint mono", dir: "ltr" }, url), // other endpoints are built into the server
    bad && h("p", { class: "outcome", dataset: { kind: "problem" } }, bad),
    error && h("p", { class: "faint", dir: "auto" }, t("models.last_error", { reason: error.message })),
  ];
}
