/** A popup menu: arrow keys move in it, Escape and a click outside close it. */

import { fill, h, icon } from "./elements.js";
import { t } from "./texts.js";

export class Menu {
  /** `actions()` gives `[[label, icon or its name, does], ...]` each time it opens. */
  constructor(button, actions) {
    Object.assign(this, { button, actions });
    this.element = h("div", { class: "menu", role: "menu", popover: "auto" });
    button.setAttribute("aria-haspopup", "menu");
    button.setAttribute("aria-expanded", "false");
    button.popoverTargetElement = this.element;
    this.element.addEventListener("beforetoggle", ({ newState }) => newState === "open" && this.#build());
    this.element.addEventListener("toggle", ({ newState }) => this.#toggled(newState === "open"));
    this.element.addEventListener("keydown", (event) => this.#key(event));
  }

  #build() {
    this.element.setAttribute("aria-label", this.button.getAttribute("aria-label") ?? t("menu.label"));
    const item = ([label, sign, does]) => {
      const onclick = () => {
        this.element.hidePopover();
        does();
      };
      return h(
        "button",
        { type: "button", role: "menuitem", tabindex: -1, onclick },
        typeof sign === "string" ? icon(sign) : sign,
        label,
      );
    };
    fill(this.element, this.actions().map(item));
  }

  #toggled(open) {
    this.button.setAttribute("aria-expanded", String(open));
    if (!open) return;
    this.#place();
    this.element.firstElementChild?.focus();
  }

  /** Below the button, or above it if there is no space; it covers no other part of the page if it can. */
  #place() {
    const at = this.button.getBoundingClientRect(),
      own = this.element.getBoundingClientRect();
    const below = at.bottom + own.height + 8 < innerHeight;
    const edge = this.button.closest(".stage, .panel, .sidebar")?.getBoundingClientRect().left ?? 0;
    const wanted = at.right - own.width < edge ? at.left : at.right - own.width;
    const left = Math.max(8, Math.min(wanted, innerWidth - own.width - 8));
    this.element.style.setProperty("left", `${left}px`);
    this.element.style.setProperty("top", `${Math.max(8, below ? at.bottom + 4 : at.top - own.height - 4)}px`);
  }

  #key(event) {
    const items = [...this.element.children];
    const at = items.indexOf(document.activeElement);
    const goes = { ArrowDown: at + 1, ArrowUp: at - 1 + items.length, Home: 0, End: items.length - 1 }[event.key];
    if (event.key === "Escape") event.stopPropagation(); // closes only the menu
    if (event.key === "Tab") this.element.hidePopover();
    if (goes === undefined) return;
    event.preventDefault();
    items[goes % items.length].focus();
  }
}
