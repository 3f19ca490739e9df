/** The side panel (an overlay on narrow pages): shows one panel at a time; a button opens it, Escape closes it. */

import { fill, h, iconButton, restoreFocus } from "../dom/elements.js";
import { guarded } from "../dom/errors.js";
import { t } from "../dom/texts.js";

const OVER = matchMedia("(max-width: 60rem)"); // as in css/layout.css: the panel lies over the page

export class Panel {
  #opener = null;
  #closed = null;
  name = null;

  constructor(element) {
    this.element = element;
    element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.defaultPrevented) return;
      event.stopPropagation();
      this.close();
    });
    // A click beside an overlay closes it.
    element.parentElement.addEventListener("click", (event) => {
      if (this.name && OVER.matches && event.target === element.parentElement) this.close();
    });
    OVER.addEventListener("change", () => this.#cover());
  }

  /**
   * Opening the panel that is open (by `name`) closes it. Returns whether it is open now. `closed` is called when its
   * content is removed; `quietly` leaves the focus where it is.
   */
  toggle(name, title, content, opener, { closed = null, quietly = false, isWide = false } = {}) {
    if (this.name === name) return this.close();
    this.#end();
    Object.assign(this, { name });
    const isShown = opener?.offsetParent; // an entry of a menu presses a button that is not
    this.#opener = isShown ? opener : quietly ? null : document.activeElement;
    this.#closed = closed;
    this.#mark(true);
    const close = iconButton(t("dialog.close"), "cross", () => this.close(), { title: null });
    const head = h("header", { class: "panel-head" }, h("h2", { id: "panel-title" }, title), close);
    fill(this.element, head, h("div", { class: "panel-body" }, content));
    this.element.setAttribute("aria-label", title);
    this.element.classList.toggle("panel-wide", isWide);
    this.element.hidden = false;
    this.#cover();
    if (!quietly) close.focus();
    return true;
  }

  /** Gives the open panel another title. */
  rename(title) {
    this.element.querySelector("#panel-title").textContent = title;
    this.element.setAttribute("aria-label", title);
  }

  /** Returns false: it is not open. */
  close() {
    if (this.name === null) return false;
    const opener = this.#opener;
    this.#end();
    this.element.hidden = true;
    fill(this.element);
    this.#cover();
    restoreFocus(opener);
    return false;
  }

  /** A text box, from which a command opens a panel, is not expanded. */
  #mark(isOpen) {
    if (this.#opener?.localName === "button") this.#opener.setAttribute("aria-expanded", String(isOpen));
  }

  #end() {
    this.#mark(false);
    if (this.#closed) guarded(this.#closed);
    this.name = this.#opener = this.#closed = null;
  }

  /** Makes the page below an overlay inert, so that the focus stays in the panel; see also drawer.js. */
  #cover() {
    const stage = this.element.parentElement.querySelector(".stage");
    stage.inert = this.name !== null && OVER.matches;
  }
}

/** Toggles a panel: `build(watch)` creates its content; its store watchers stop when the panel closes. */
export function showPanel(page, name, title, build, opener) {
  if (page.panel.name === name) return page.panel.close();
  const stops = [];
  const content = build((key, callback) => stops.push(page.store.watch(key, callback)));
  return page.panel.toggle(name, title, content, opener, { closed: () => stops.forEach((stop) => stop()) });
}
