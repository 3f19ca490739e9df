/** The examination of an endpoint's model: its prompts under way, then the report, which can be copied. For admins. */

import { request } from "../../feed/api.js";
import { readEvents } from "../../feed/sse.js";
import { copyButton } from "../../dom/copy.js";
import { announce, button, buttonRow, fill, h, stack } from "../../dom/elements.js";
import { Outcome, actionButton, field, select } from "../../dom/forms.js";
import { markdownElement } from "../../markdown/markdown.js";
import { t } from "../../dom/more_texts.js";

/** Opens the panel of an endpoint with these models. What is under way ends when the panel is closed. */
export function openExamination(page, endpoint, models, opener) {
  const examination = new Examination(endpoint, models);
  const closed = () => examination.stop();
  page.panel.toggle(`examination ${endpoint}`, t("examine.title", { endpoint }), examination.element, opener, {
    closed,
    isWide: true,
  });
}

class Examination {
  #path;
  #abort = null;

  constructor(endpoint, models) {
    this.#path = `/endpoints/${encodeURIComponent(endpoint)}/examination`;
    this.model = select(models.map((name) => [name, name]));
    this.quick = h("input", { type: "checkbox", checked: true });
    this.outcome = new Outcome();
    this.progress = h("progress", { hidden: true, "aria-label": t("examine.progress") });
    this.start = actionButton(t("examine.start"), this.outcome, () => this.#run(), { class: "primary" });
    this.cancel = button(t("dialog.cancel"), () => this.stop(), { hidden: true });
    this.report = h("div");
    this.element = stack(
      h("p", { class: "faint" }, t("examine.about")),
      models.length > 0 && field(t("connect.model"), this.model),
      h("label", { class: "check" }, this.quick, " ", t("examine.quick")),
      buttonRow(this.start, this.cancel),
      this.progress,
      this.outcome.element,
      this.report,
    );
  }

  stop() {
    this.#abort?.abort();
  }

  async #run() {
    const abort = (this.#abort = new AbortController());
    this.cancel.hidden = this.progress.hidden = false;
    this.progress.removeAttribute("value");
    fill(this.report);
    try {
      const body = { quick: this.quick.checked, ...(this.model.value && { model: this.model.value }) };
      const response = await request("POST", this.#path, { body, signal: abort.signal });
      for await (const event of readEvents(response)) this.#show(event);
    } catch (error) {
      if (!abort.signal.aborted) throw error;
      this.outcome.show(t("examine.stopped"));
    } finally {
      this.cancel.hidden = this.progress.hidden = true;
      this.#abort = null;
    }
  }

  #show({ type, data }) {
    if (type === "progress") {
      Object.assign(this.progress, { max: data.of, value: data.done });
      this.outcome.show(t("examine.step", { done: data.done, of: data.of, probe: data.probe }));
    } else if (type === "none") {
      this.outcome.show(data.message, "problem");
    } else {
      const copy = copyButton(t("examine.copy"), () => data.markdown, t("examine.copy"));
      this.outcome.clear();
      fill(this.report, stack(buttonRow(copy), markdownElement(data.markdown)));
      announce(t("examine.done"));
    }
  }
}
