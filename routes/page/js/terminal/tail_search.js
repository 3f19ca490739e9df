/** A line that searches in an output: Enter and Shift + Enter go to the next place and the one before. */

import { h, iconButton, onNextFrame } from "../dom/elements.js";
import { t } from "../dom/more_texts.js";

export class TailSearch {
  #searched = "";

  /**
   * `find(term, {back, fresh, keep})` shows a place and resolves with `{at, of}`, or with whether there is one; with
   * null while that is not known, with nothing if another search has begun or it has not looked. `keep`: what was found
   * stays as it is.
   */
  constructor(find, onClose) {
    this.find = find;
    this.onClose = onClose;
    const typed = { oninput: () => onNextFrame(this.#typed), onkeydown: (event) => this.#key(event) };
    const words = { "aria-label": t("tail.search"), placeholder: t("tail.search") };
    this.line = h("input", { type: "search", class: "tail-term", ...words, ...typed });
    this.found = h("span", { class: "tail-found", role: "status" });
    const props = { class: "quiet tail-button", title: null };
    const before = iconButton(t("tail.search.back"), "up", () => this.#show({ back: true }), props);
    const next = iconButton(t("tail.search.next"), "down", () => this.#show({ back: false }), props);
    const parts = [this.line, this.found, before, next];
    this.element = h("div", { class: "tail-search", role: "search", hidden: true }, parts);
  }

  toggle() {
    if (!this.element.hidden) return this.#leave();
    this.element.hidden = false;
    this.line.focus();
    this.line.select();
  }

  /** Searches in what has come since. */
  refresh() {
    if (this.#searched && this.#searched === this.line.value) this.#show({ keep: true });
  }

  close() {
    this.element.hidden = true;
    this.found.textContent = "";
    this.#searched = "";
    this.find("", {});
  }

  #typed = () => {
    if (this.line.value !== this.#searched) this.#show({ fresh: true });
  };

  #key(event) {
    if (event.key === "Escape") {
      event.stopPropagation(); // it closes this, and not what the card is in
      event.preventDefault();
      this.#leave();
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.#show({ back: event.shiftKey });
    }
  }

  async #show(how) {
    const term = this.line.value;
    this.#searched = term;
    const found = await this.find(term, how);
    if (term !== this.line.value || term !== this.#searched) return;
    if (term && found === undefined) return;
    const words = !term || found === null ? "" : wordsOf(found);
    if (words !== this.found.textContent) this.found.textContent = words;
  }

  #leave() {
    this.close();
    this.onClose();
  }
}

function wordsOf(found) {
  if (!found || found.of === 0) return t("tail.search.none");
  return found.of ? t("tail.search.place", found) : "";
}
