/** Which model answers: the list to pick from, by endpoint; admins see how the endpoints are and add others. */

import { get, remove } from "./api.js";
import { openConnect } from "./connect.js";
import { fill, h, icon, say } from "./dom.js";
import { keep, kept } from "./kept.js";
import { Outcome, Rows, number, showPanel, sure } from "./forms.js";

const MANY = 8; // models from which on one searches
const MOST = 200; // of an endpoint that are drawn at a time
const KEPT = "model."; // and the session: what was picked for it
const SOON_MS = 5_000; // between two questions for a window that is not known yet

let asked_at = 0;

export function start(page) {
  page.store.watch("session", (session) => page.store.set({ model: kept(KEPT + (session ?? "new")) }));
  page.store.watch("link", ({ state }) => state === "open" && refresh(page));
  page.store.watch("server", () => page.store.get("endpoints") && refresh(page));
  page.store.watch("usage", (usage) => {
    if (page.store.get("me")?.role === "guest") return; // is told no windows
    if (!usage.restored && !windowOf(page, usage.model) && Date.now() - asked_at > SOON_MS) refresh(page);
  });
}

/** Asks which models there are. Never raises: what the page knows stays. */
export async function refresh(page) {
  asked_at = Date.now();
  try {
    page.store.set({ endpoints: await get("/endpoints") });
  } catch (error) {
    if (typeof error.status !== "number") throw error;
    if (!page.store.get("endpoints"))
      page.store.set({ endpoints: { endpoints: [], aliases: {}, problem: error.message } });
  }
}

/** Picks a model for the conversation that is open; null for the server's default. */
export function choose(page, model) {
  keep(KEPT + (page.store.get("session") ?? "new"), model);
  page.store.set({ model });
  say(model ? `${model} answers from now on.` : "The default model answers from now on.");
}

/** A conversation has begun with what was picked before it had a name. */
export function carried(session) {
  keep(KEPT + session, kept(`${KEPT}new`));
  keep(`${KEPT}new`, null);
}

/** The model that answers next: `{name, endpoint}`. */
export function answering(page) {
  const server = page.store.get("server") ?? {};
  const known = page.store.get("endpoints");
  const picked = page.store.get("model");
  if (!picked) return { name: server.model, endpoint: server.endpoint };
  const meant = known?.aliases?.[picked] ?? picked;
  const [head, ...rest] = meant.split("/");
  if (rest.length && known?.endpoints.some(({ name }) => name === head))
    return { name: rest.join("/"), endpoint: head };
  return { name: meant, endpoint: "" };
}

/** How many tokens a model reads at a time, as far as the page knows; null else. */
export function windowOf(page, model) {
  const found = page.store
    .get("endpoints")
    ?.endpoints.flatMap(({ name, models }) => models.map((one) => ({ ...one, of: name })));
  const fits = found?.filter((one) => one.window && one.name === model) ?? [];
  const { endpoint } = answering(page);
  return (fits.find(({ of }) => of === endpoint) ?? fits[0])?.window ?? null;
}

/** Opens the picker, or closes it. */
export function togglePicker(page, opener) {
  refresh(page);
  return showPanel(page, "models", "Models", (watch) => new Picker(page, opener, watch).element, opener);
}

class Picker {
  #page;
  #rows;
  #words = "";

  constructor(page, opener, watch) {
    this.#page = page;
    this.search = h("input", {
      type: "search",
      placeholder: "Search models",
      "aria-label": "Search models",
      oninput: () => this.#find(),
    });
    this.search.addEventListener("keydown", (event) => event.key === "ArrowDown" && this.#first(event));
    this.problem = h("p", { class: "problem", hidden: true });
    this.none = h("p", { class: "faint", hidden: true });
    this.list = h("div", { class: "picks", role: "radiogroup", "aria-label": "Model of this conversation" });
    this.#rows = new Rows(this.list, (row) => this.#section(row));
    const admin = page.store.get("me")?.role === "admin";
    this.element = h(
      "div",
      { class: "models" },
      h("p", { class: "faint" }, "Picked for this conversation, from the next message on."),
      this.search,
      this.problem,
      this.list,
      this.none,
      admin &&
        h(
          "button",
          { type: "button", class: "primary", onclick: () => openConnect(page, opener) },
          icon("plus"),
          "Connect a model",
        ),
    );
    watch("endpoints", () => this.#draw());
    watch("model", () => this.#mark());
  }

  #draw() {
    const { endpoints, aliases, problem } = this.#page.store.get("endpoints");
    const server = this.#page.store.get("server") ?? {};
    this.problem.hidden = !problem;
    fill(this.problem, problem);
    this.search.hidden = endpoints.reduce((sum, one) => sum + one.models.length, 0) <= MANY;
    const own = [{ value: "", name: "Default", note: `${server.model} · ${server.endpoint}` }];
    for (const [name, meant] of Object.entries(aliases)) own.push({ value: name, name, note: meant });
    this.#rows.show(
      [
        { key: "", own, words: this.#words },
        ...endpoints.map((one) => ({ key: one.name, ...steady(one), words: this.#words })),
      ],
      ({ key }) => key,
    );
    this.#mark();
  }

  #find() {
    this.#words = this.search.value.trim().toLowerCase();
    this.#draw();
    const found = this.list.querySelectorAll("input").length;
    this.none.hidden = found > 0;
    fill(this.none, `No model is called anything like “${this.search.value.trim()}”.`);
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
    if (row.own)
      return h(
        "section",
        { class: "endpoint" },
        row.own.filter(fits).map((one) => this.#pick(one)),
      );
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
      more > 0 && h("p", { class: "faint" }, `And ${number(more)} more: search for them.`),
      row.origin === "added" && this.#removal(row.name),
    );
  }

  #pick({ value, name, note, signs = [] }) {
    const input = h("input", {
      type: "radio",
      name: "model",
      value,
      onchange: () => choose(this.#page, value || null),
    });
    return h(
      "label",
      { class: "pick" },
      input,
      h("span", { class: "pick-name", dir: "auto" }, name),
      h("span", { class: "faint pick-note", dir: "auto" }, note),
      signs.map((sign) => h("span", { class: "sign" }, sign)),
    );
  }

  #removal(name) {
    const outcome = new Outcome();
    const away = async () => {
      await remove(`/endpoints/${encodeURIComponent(name)}`);
      if (answering(this.#page).endpoint === name && this.#page.store.get("model")) choose(this.#page, null);
      await refresh(this.#page);
    };
    return h(
      "div",
      {},
      sure("Remove", `Remove ${name}? Runs under way keep it until they end.`, "Remove it", outcome, away),
      outcome.element,
    );
  }
}

/** Without what counts down by itself, so that a row is drawn anew only when there is something to see. */
function steady({ back_in_s, resting, under_way, waiting, ...rest }) {
  return rest;
}

function described(endpoint, { name, window, abilities = [], any }) {
  const has = (ability) => abilities.find((one) => one.name === ability)?.value === true;
  const signs = [has("images") && "sees pictures", has("pdf") && "reads PDF", has("tools") && "calls tools natively"];
  const note = any ? "whatever it serves" : window ? `${number(window)} tokens` : "";
  return { value: any ? name : `${endpoint}/${name}`, name, note, signs: signs.filter(Boolean) };
}

const STATES = {
  ok: null,
  cooling: "It answers slowly or wants fewer requests just now.",
  dead: "It cannot be reached just now.",
  unusable: "It has no key that can be used.",
};

/** What admins are told of an endpoint. */
function about({ url, state, problem, last_error: error }) {
  if (!url) return null;
  const bad = problem ?? STATES[state] ?? null;
  return [
    url.includes("//") && h("p", { class: "faint mono", dir: "ltr" }, url), // others are inside the server
    bad && h("p", { class: "outcome", dataset: { kind: "problem" } }, bad),
    error && h("p", { class: "faint", dir: "auto" }, `Last error: ${error.message}`),
  ];
}
