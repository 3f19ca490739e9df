/** Connects a model endpoint: a form that tests the endpoint before saving it. */

import { post } from "../feed/api.js";
import { button, buttonRow, fill, h } from "../dom/elements.js";
import { Outcome, runOnce, field, select } from "../dom/forms.js";
import { chooseModel, refresh } from "./models.js";
import { showPanel } from "./panel.js";
import { t } from "../dom/more_texts.js";

const CUSTOM = t("connect.other");
const PRESETS = {
  "llama.cpp": { name: "llama-cpp", url: "http://127.0.0.1:8080/v1" },
  vLLM: { name: "vllm", url: "http://127.0.0.1:8000/v1" },
  SGLang: { name: "sglang", url: "http://127.0.0.1:30000/v1" },
  "LM Studio": { name: "lm-studio", url: "http://127.0.0.1:1234/v1" },
  Ollama: { name: "ollama", url: "http://127.0.0.1:11434/v1" },
  OpenAI: { name: "openai", url: "https://api.openai.com/v1", key: true },
  Anthropic: { name: "anthropic", url: "https://api.anthropic.com", key: true },
  OpenRouter: { name: "openrouter", url: "https://openrouter.ai/api/v1", key: true },
  [CUSTOM]: { name: "", url: "" },
};
const SHOWN = 12; // models that a successful test lists

/** Opens the form, or closes it. */
export function openConnect(page, opener) {
  return showPanel(page, "connect", t("models.connect"), () => new ConnectForm(page).element, opener);
}

class ConnectForm {
  #page;
  #tested = null; // the last successful test, as long as the form has not changed

  constructor(page) {
    this.#page = page;
    const names = Object.keys(PRESETS).map((name) => [name, name]);
    this.preset = select(names, { onchange: () => this.#fill() });
    const oninput = () => this.#invalidateTest();
    const plain = { autocomplete: "off", spellcheck: "false", dir: "ltr", oninput };
    const named = { pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*", title: t("connect.name.pattern") };
    this.url = h("input", { ...plain, type: "url", required: true, maxlength: 2048, class: "mono" });
    this.name = h("input", { ...plain, ...named, required: true, maxlength: 64 });
    this.key = h("input", { ...plain, type: "password", maxlength: 8192 });
    this.model = h("select");
    this.models = field(t("connect.model"), this.model, t("connect.model.hint"));
    this.outcome = new Outcome();
    this.test = h("button", { class: "primary", type: "submit" }, t("connect.test"));
    this.save = button(t("connect.save.untested"), () => this.#save());
    this.element = this.#form();
    this.#fill();
  }

  #form() {
    const onsubmit = (event) => {
      event.preventDefault();
      this.#test();
    };
    return h(
      "form",
      { class: "form", autocomplete: "off", onsubmit },
      h("p", { class: "faint" }, t("connect.about")),
      field(t("connect.software"), this.preset),
      field(t("connect.address"), this.url, t("connect.address.hint")),
      field(t("connect.name"), this.name, t("connect.name.hint")),
      field(t("connect.key"), this.key, t("connect.key.hint")),
      buttonRow(this.test, this.save),
      this.outcome.element,
      this.models,
      setting(),
    );
  }

  #fill() {
    const { name, url } = PRESETS[this.preset.value];
    Object.assign(this.url, { value: url });
    Object.assign(this.name, { value: name });
    this.#invalidateTest();
  }

  /** The form has changed since the test. */
  #invalidateTest() {
    this.#tested = null;
    this.models.hidden = true;
    fill(this.save, t("connect.save.untested"));
    this.save.className = "";
    this.test.className = "primary";
    this.outcome.clear();
  }

  #body() {
    const key = this.key.value.trim();
    return { name: this.name.value.trim(), url: this.url.value.trim(), keys: key ? [key] : [] };
  }

  async #test() {
    const wish = this.#body();
    const found = await runOnce(this.test, this.outcome, () => {
      this.outcome.show(t("connect.testing"));
      return post("/endpoints", { ...wish, test: true });
    });
    if (!found || JSON.stringify(wish) !== JSON.stringify(this.#body())) return;
    if (!found.ok) return void this.outcome.show(found.problem, "problem");
    this.#tested = found;
    const names = found.models.slice(0, SHOWN).join(", ");
    const more = found.models.length - SHOWN;
    const all = more > 0 ? t("connect.models.more", { names, count: more }) : t("connect.models", { names });
    this.outcome.show(found.models.length ? all : t("connect.models.none"), "good");
    const options = found.models.map((name) => h("option", {}, name));
    fill(this.model, options);
    this.models.hidden = !found.models.length;
    fill(this.save, t("connect.save"));
    this.save.className = "primary";
    this.test.className = "";
  }

  async #save() {
    if (!this.element.reportValidity()) return;
    const wish = this.#body();
    const model = this.#tested && !this.models.hidden ? this.model.value : null;
    const kept = await runOnce(this.save, this.outcome, () => post("/endpoints", model ? { ...wish, model } : wish));
    if (!kept) return;
    this.key.value = "";
    chooseModel(this.#page, model ? `${kept.name}/${model}` : kept.name);
    await refresh(this.#page);
    const props = { class: "outcome", role: "status", dataset: { kind: "good" } };
    const done = h("p", props, t("connect.done", { name: kept.name }));
    const close = button(t("dialog.close"), () => this.#page.panel.close());
    this.element.replaceWith(h("div", { class: "form" }, done, close));
    this.#page.panel.element.querySelector("button")?.focus();
  }
}

/** The other way to connect a model, folded. */
function setting() {
  const props = { class: "command", tabindex: 0, "aria-label": t("first_visit.setting") };
  const line = h("pre", props, "DRAGOMAN_MODEL_URL=http://127.0.0.1:8080/v1");
  return h("details", { class: "faint" }, h("summary", {}, t("first_visit.how")), line);
}
