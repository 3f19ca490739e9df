/**
 * The list of conversations, shown and hidden: on narrow pages a drawer over the page, with the focus inside, until it
 * is closed; on wide ones a column that can be hidden, which the browser remembers.
 */

import { iconButton } from "../dom/elements.js";
import { readPreference, writePreference } from "../dom/storage.js";
import { t } from "../dom/texts.js";

const NARROW = matchMedia("(max-width: 48rem)"); // as in css/layout.css
const HIDDEN = "sidebar"; // the preference

export class Drawer {
  #page;
  #opener = null;
  #hidden = readPreference(HIDDEN) === "hidden";

  constructor(page) {
    this.#page = page;
    this.element = page.at("sidebar");
    this.app = page.at("app");
    this.element.addEventListener("keydown", (event) => event.key === "Escape" && this.close());
    page.at("scrim").addEventListener("click", () => this.close());
    NARROW.addEventListener("change", () => this.#show(false));
    this.#show(false);
  }

  /** The buttons at the head of the list: one closes the drawer, the other hides the column. */
  buttons() {
    const hides = { class: "quiet sidebar-hide", title: `${t("list.hide")} (${t("keys.list")})` };
    const closes = { class: "quiet drawer-close", title: null };
    return [
      iconButton(t("list.hide"), "sidebar", () => this.toggle(), hides),
      iconButton(t("list.close"), "cross", () => this.close(), closes),
    ];
  }

  get isOpen() {
    return this.app.classList.contains("drawer-open");
  }

  /** Shows the list, wherever it is. */
  open(opener = document.activeElement) {
    if (!NARROW.matches && this.#hidden) return this.toggle();
    if (!NARROW.matches || this.isOpen) return;
    this.#page.panel.close();
    this.#opener = opener;
    this.#show(true);
    this.element.querySelector("button")?.focus();
  }

  close() {
    if (!this.isOpen) return;
    this.#show(false);
    this.#opener?.focus();
  }

  /** Hides the list, or shows it again. The focus stays on a button that does the opposite. */
  toggle() {
    if (NARROW.matches) return this.isOpen ? this.close() : this.open();
    const inside = this.element.contains(document.activeElement);
    const onMenu = document.activeElement?.classList.contains("menu-button");
    this.#hidden = !this.#hidden;
    writePreference(HIDDEN, this.#hidden ? "hidden" : null);
    this.#show(false);
    if (this.#hidden && inside) document.querySelector(".menu-button")?.focus();
    else if (onMenu) this.element.querySelector(".sidebar-hide")?.focus();
  }

  #show(open) {
    const hidden = this.#hidden && !NARROW.matches;
    this.app.classList.toggle("drawer-open", open);
    this.app.classList.toggle("sidebar-hidden", hidden);
    this.element.inert = hidden || (NARROW.matches && !open);
    this.app.querySelector(".stage").inert = open;
    document.querySelector(".menu-button")?.setAttribute("aria-expanded", String(open));
  }
}
