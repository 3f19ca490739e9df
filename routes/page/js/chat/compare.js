/** Two answers to one message, side by side, until the person goes on with one of them. */

import { announce, button, focusMessageBox, h, icon, iconButton } from "../dom/elements.js";
import { Problem } from "../dom/forms.js";
import { t } from "../dom/more_texts.js";
import { post } from "../feed/api.js";
import { drawRun, quiet } from "./helper_view.js";

export class Comparison {
  #page;
  #left = new AbortController();
  #own; // the turn of the open conversation, which the first column shows

  /** `columns`: `{session, run, model}`; the first one's session is open. */
  constructor(page, words, columns) {
    this.#page = page;
    page.comparison?.close();
    page.comparison = this;
    const heading = h("h2", { tabindex: -1 }, t("compare.heading"));
    const close = iconButton(t("compare.close"), "cross", () => this.close());
    const drawn = columns.map((column) => this.#column(column));
    const head = h("header", { class: "compare-head" }, heading, close);
    const prompt = h("p", { class: "compare-prompt", dir: "auto" }, words);
    const side = h("div", { class: "compare-columns" }, drawn);
    this.element = h("section", { class: "compare", "aria-label": t("compare.heading") }, head, prompt, side);
    this.#own = () => page.conversation.run(columns[0].run)?.element;
    this.hideOwn();
    page.conversation.element.querySelector(".runs").after(this.element);
    const unwatch = page.store.watch("session", (session) => session !== columns[0].session && this.close());
    this.#left.signal.addEventListener("abort", unwatch);
    page.conversation.follower.following = false; // both are read from their beginning
    page.store.set({ compared: columns.map(({ session }) => session) });
    this.element.scrollIntoView({ block: "start" });
    heading.focus({ preventScroll: true });
    announce(t("compare.heading"));
  }

  /** Hides the turn of the open conversation, once it is there. */
  hideOwn(hidden = true) {
    const own = this.#own();
    if (own) own.hidden = hidden;
  }

  #column({ session, run, model }) {
    const asked = { run, session, message: null, state: "running", created: Date.now() / 1000 };
    const drawn = this.#page.conversation.newView(asked, quiet(this.#page));
    const problem = new Problem();
    const words = [icon("stop"), t("composer.stop")];
    const stop = button(words, () => this.#stop(run, stop, problem), { class: "compare-stop" });
    const take = button(t("compare.take"), () => this.#take(session), { class: "primary" });
    const name = h("h3", { dir: "auto" }, model);
    const article = h(
      "article",
      { class: "compare-column", "aria-label": model },
      h("header", {}, name, stop),
      h("div", { class: "compare-body", tabindex: 0, role: "group", "aria-label": model }, drawn.element),
      problem.element,
      h("footer", {}, take),
    );
    drawRun(run, asked, drawn, this.#left, () => true).then(() => {
      if (document.activeElement === stop) take.focus({ preventScroll: true });
      stop.hidden = true;
    });
    return article;
  }

  async #stop(run, stop, problem) {
    stop.disabled = true;
    try {
      await post(`/runs/${encodeURIComponent(run)}/cancel`);
    } catch (error) {
      problem.show(error.message);
      stop.disabled = false;
    }
  }

  async #take(session) {
    this.close();
    await this.#page.conversation.open(session);
    focusMessageBox();
    announce(t("compare.taken"));
  }

  /** Goes back to the open conversation; both answers stay as branches. */
  close() {
    if (this.#left.signal.aborted) return;
    this.#left.abort();
    this.hideOwn(false);
    const focused = this.element.contains(document.activeElement);
    this.element.remove();
    this.#page.comparison = null;
    this.#page.store.set({ compared: [] });
    if (focused) focusMessageBox();
  }
}
