/** Connects a model endpoint: a form that tests the endpoint before saving it. */

import { post } from "../feed/api.js";
import { fill, h } from "../dom/elements.js";
import { Outcome, runOnce, field } from "../dom/forms.js";
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
    const names = Object.keys(PRESETS);
    this.preset = h(
      "select",
      { onchange: () => this.#fill() },
      names.map((name) => h("option", {}, name)),
    );
    this.url = h("input", {
      type: "url",
      required: true,
      maxlength: 2048,
      autocomplete: "off",
      spellcheck: "false",
      dir: "ltr",
      class: "mono",
    });
    this.name = h("input", {
      required: true,
      maxlength: 64,
      autocomplete: "off",
      spellcheck: "false",
      dir: "ltr",
      pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*",
      title: t("connect.name.pattern"),
    });
    this.key = h("input", { type: "password", maxlength: 8192, autocomplete: "off", spellcheck: "false", dir: "ltr" });
    this.model = h("select");
    this.models = field(t("connect.model"), this.model, t("connect.model.hint"));
    this.outcome = new Outcome();
    this.test = h("button", { class: "primary", type: "submit" }, t("connect.test"));
    this.save = h("button", { type: "button", onclick: () => this.#save() }, t("connect.save.untested"));
    this.element = this.#form();
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#test();
    });
    for (const input of [this.url, this.name, this.key]) input.addEventListener("input", () => this.#invalidateTest());
    this.#fill();
  }

  #form() {
    return h(
      "form",
      { class: "form", autocomplete: "off" },
      h("p", { class: "faint" }, t("connect.about")),
      field(t("connect.software"), this.preset),
      field(t("connect.address"), this.url, t("connect.address.hint")),
      field(t("connect.name"), this.name, t("connect.name.hint")),
      field(t("connect.key"), this.key, t("connect.key.hint")),
      h("div", { class: "buttons" }, this.test, this.save),
      this.outcome.element,
      this.models,
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
    fill(
      this.model,
      found.models.map((name) => h("option", {}, name)),
    );
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
    const done = h(
      "p",
      { class: "outcome", role: "status", dataset: { kind: "good" } },
      t("connect.done", { name: kept.name }),
    );
    this.element.replaceWith(
      h(
        "div",
        { class: "form" },
        done,
        h("button", { type: "button", onclick: () => this.#page.panel.close() }, t("dialog.close")),
      ),
    );
    this.#page.panel.element.querySelector("button")?.focus();
  }
}
