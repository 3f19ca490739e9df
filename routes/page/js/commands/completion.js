/** Completes `/` commands and prompts in the message box: a list above it; arrows move, Enter or Tab takes, Esc closes. */

import { announce, fill, h } from "../dom/elements.js";
import { t } from "../dom/more_texts.js";
import { promptRows } from "./prompts.js";
import { COMMANDS } from "./table.js";

const TYPED = /^\/([^\s/]*)$/u;
const WHOLE = /^\/([^\s/]+)(?:\s+(.*))?$/su;

export class Completion {
  #page;
  #rows = [...COMMANDS];
  #found = [];
  #at = 0;
  #listed = ""; // the text that the list is for
  #dismissed = null; // the text at which Escape closed the list

  constructor(page) {
    this.#page = page;
    this.text = page.composer.text;
    const props = {
      id: "commands",
      class: "commands",
      role: "listbox",
      tabindex: 0, // it scrolls; Tab takes an option before it gets there
      "aria-label": t("commands.title"),
      hidden: true,
    };
    this.list = h("div", props);
    this.text.setAttribute("aria-autocomplete", "list");
    page.composer.form.append(this.list);
    this.text.addEventListener("blur", () => this.#close());
    this.list.addEventListener("pointerdown", (event) => event.preventDefault()); // the box keeps the focus
  }

  /** Follows the text of the box. */
  async update() {
    const typed = TYPED.exec(this.text.value);
    const isHere = document.activeElement === this.text;
    if (!typed || !isHere || this.text.value === this.#dismissed) return this.#close();
    this.#dismissed = null;
    this.#find(typed[1]);
    const prompts = await promptRows(this.#page);
    const now = TYPED.exec(this.text.value);
    const isSame = this.#rows.slice(COMMANDS.length).every((row, at) => row === prompts[at]);
    if (isSame && this.#rows.length === COMMANDS.length + prompts.length) return undefined;
    this.#rows = [...COMMANDS, ...prompts];
    if (now && this.text.value !== this.#dismissed && document.activeElement === this.text) this.#find(now[1]);
    return undefined;
  }

  /** Whether the key was for the list. */
  key(event) {
    const typed = TYPED.exec(this.text.value);
    if (!this.list.hidden && !typed) this.#close();
    else if (!this.list.hidden && this.text.value !== this.#listed) this.#find(typed[1]); // the key was quicker
    if (this.list.hidden) return false;
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in steps) this.#mark((this.#at + steps[event.key] + this.#found.length) % this.#found.length);
    else if (event.key === "Escape") {
      this.#dismissed = this.text.value;
      this.#close();
    } else if ((event.key === "Enter" && !event.shiftKey) || event.key === "Tab") this.#take(this.#found[this.#at]);
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }

  /** Runs the command that is the whole text. Returns whether there is one. */
  async run(text) {
    const [, name, rest = ""] = WHOLE.exec(text) ?? [];
    const row = [...COMMANDS, ...(name ? await promptRows(this.#page) : [])].find((one) => one.name === name);
    if (row) this.#take(row, rest.trim());
    return Boolean(row);
  }

  #find(begun) {
    const words = begun.toLowerCase();
    this.#listed = this.text.value;
    const first = this.#rows.filter(({ name }) => name.toLowerCase().startsWith(words));
    const others = this.#rows.filter((row) => !first.includes(row) && row.name.toLowerCase().includes(words));
    this.#found = [...first, ...others];
    if (!this.#found.length) return this.#close();
    const wasOpen = !this.list.hidden;
    fill(this.list, this.#found.map(option));
    [...this.list.children].forEach((element, at) => {
      element.addEventListener("click", () => this.#take(this.#found[at]));
      const moved = ({ movementX, movementY }) => (movementX || movementY) && at !== this.#at && this.#mark(at);
      element.addEventListener("pointermove", moved); // not by a list that comes under a pointer at rest
    });
    this.list.hidden = false;
    this.text.setAttribute("aria-controls", this.list.id);
    this.#mark(0);
    if (!wasOpen) announce(t("commands.open", { count: this.#found.length }));
    return undefined;
  }

  #mark(at) {
    this.#at = at;
    [...this.list.children].forEach((element, place) => element.setAttribute("aria-selected", String(place === at)));
    this.list.children[at].scrollIntoView({ block: "nearest" });
    this.text.setAttribute("aria-activedescendant", this.list.children[at].id);
  }

  #close() {
    this.list.hidden = true;
    this.text.removeAttribute("aria-activedescendant");
    this.text.removeAttribute("aria-controls");
  }

  #take(row, rest = "") {
    this.#close();
    this.#page.composer.fill(row.takesWords ? "" : rest);
    this.#page.composer.attempt(async () => row.run(this.#page, rest));
  }
}

function option({ name, about }, at) {
  const words = [h("span", { class: "command-name" }, `/${name}`), h("span", { class: "command-about faint" }, about)];
  return h("div", { id: `command-${at}`, class: "command", role: "option", dir: "auto" }, words);
}
