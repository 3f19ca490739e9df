/** The list of conversations as a drawer on narrow pages: over the page, with the focus inside, until it is closed. */

const NARROW = matchMedia("(max-width: 48rem)"); // as in css/layout.css

export class Drawer {
  #page;
  #opener = null;

  constructor(page) {
    this.#page = page;
    this.element = page.at("sidebar");
    this.app = page.at("app");
    this.element.addEventListener("keydown", (event) => event.key === "Escape" && this.close());
    page.at("scrim").addEventListener("click", () => this.close());
    NARROW.addEventListener("change", () => this.#show(false));
    this.#show(false);
  }

  get isOpen() {
    return this.app.classList.contains("drawer-open");
  }

  /** On a wide page the list is always visible. */
  open(opener = document.activeElement) {
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

  #show(open) {
    this.app.classList.toggle("drawer-open", open);
    this.element.inert = NARROW.matches && !open;
    this.app.querySelector(".stage").inert = open;
    document.querySelector(".menu-button")?.setAttribute("aria-expanded", String(open));
  }
}
