/** A conversation in the list: a link, its state, and a menu. */

import { patch, remove } from "../feed/api.js";
import { dialog, fill, h, icon, announce } from "../dom/elements.js";
import { Menu } from "../dom/menu.js";

const UNNAMED = "Untitled";
const EXPORTS = [
  ["Export as Markdown", "md"],
  ["Export as JSON", "json"],
];
const exported = async (id, form) => (await import("./export.js")).save(id, form);
const DELETE_WARNING =
  "Its messages, results and attachments are deleted permanently. Its active runs and background jobs are stopped. " +
  "Files in the workspace are kept.";

export class SessionRow {
  #page;
  #marks = "";

  constructor(session, page) {
    this.#page = page;
    this.session = session;
    this.title = h("span", { class: "session-title", dir: "auto" });
    this.state = h("span", { class: "session-state" });
    this.labels = h("span", { class: "session-labels" });
    this.snippet = h("span", { class: "session-snippet", dir: "auto" });
    this.link = h("a", { href: `#${session.id}`, class: "session-link", onclick: () => page.drawer.close() });
    this.link.append(this.title, this.state, this.labels, this.snippet);
    this.more = h("button", { type: "button", class: "quiet session-more" }, icon("more"));
    this.menu = new Menu(this.more, () => this.#actions());
    this.element = h("li", { class: "session" }, this.link, this.more, this.menu.element);
  }

  show(session) {
    this.session = session;
    const title = session.title || UNNAMED;
    if (this.title.textContent !== title) this.title.textContent = title;
    this.more.setAttribute("aria-label", `More for ${title}`);
    const labels = session.labels ?? [];
    if (this.labels.childElementCount !== labels.length)
      fill(this.labels, ...labels.map((label) => h("span", { class: "badge label" }, label)));
    this.snippet.textContent = session.snippet ?? "";
    this.snippet.hidden = !session.snippet;
    this.link.title = session.summary ?? "";
  }

  /** The state is shown by text as well as by colour. */
  mark({ open, running, waiting }) {
    const marks = [open, running, waiting].join();
    if (marks === this.#marks) return;
    this.#marks = marks;
    if (open) this.link.setAttribute("aria-current", "page");
    else this.link.removeAttribute("aria-current");
    const asks =
      waiting && h("span", { class: "badge" }, waiting === 1 ? "waiting for you" : `${waiting} waiting for you`);
    fill(this.state, asks || (running && h("span", { class: "running" }, h("span", { class: "pulse" }), "working")));
  }

  #actions() {
    const exports = EXPORTS.map(([label, form]) => [label, "save", () => this.#guard(exported(this.session.id, form))]);
    const labels = this.session.labels && ["Labels", "check", () => this.#guard(this.#label())];
    const rename = ["Rename", "pencil", () => this.rename()];
    const options = ["Options", "gear", () => this.#guard(this.#options())];
    return [rename, options, ...(labels ? [labels] : []), ...exports, ["Delete", "bin", () => this.#delete()]];
  }

  async #label() {
    const { chooseLabels } = await import("./labels.js");
    if (await chooseLabels(this.session)) this.#page.sessions.refresh();
  }

  async #options() {
    const { toggle } = await import("../panels/conversation/settings.js");
    this.#page.drawer.close();
    toggle(this.#page, this.more, this.session);
  }

  #guard(doing) {
    doing.catch((error) => announce(error.message, { urgent: true }) ?? this.#problem(error.message));
  }

  #problem(words) {
    this.element.querySelector(".problem")?.remove();
    this.element.append(h("p", { class: "problem", role: "alert" }, words));
  }

  rename() {
    renameField(this.link, this.session, (title) => {
      if (title) this.session = { ...this.session, title };
      this.show(this.session);
      this.#page.sessions.refresh();
      this.more.focus();
    });
  }

  async #delete() {
    const { id, title } = this.session;
    const sure = await dialog("Delete this conversation?", (close) =>
      h(
        "div",
        {},
        h("p", { class: "dialog-title", dir: "auto" }, title || UNNAMED),
        h("p", {}, DELETE_WARNING),
        h(
          "div",
          { class: "dialog-buttons" },
          h("button", { type: "button", onclick: () => close(false), autofocus: true }, "Cancel"),
          h("button", { type: "button", class: "danger", onclick: () => close(true) }, "Delete"),
        ),
      ),
    );
    if (!sure) return;
    try {
      await remove(`/sessions/${encodeURIComponent(id)}?branches=all`);
      announce("The conversation is deleted.");
      if (this.#page.store.get("session") === id) this.#page.conversation.open(null);
      this.#page.sessions.refresh();
      this.#page.at("composer-text")?.focus();
    } catch (error) {
      this.#problem(error.message);
    }
  }
}

/** Replaces `element` by a text field; `done(title)` with the new title, or null if unchanged. */
export function renameField(element, { id, title }, done) {
  const field = h("input", { class: "rename", maxlength: 200, "aria-label": "Title", dir: "auto", value: title ?? "" });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const box = h("span", { class: "renaming" }, field, problem);
  let over = false;
  const end = (named) => {
    if (over) return;
    over = true;
    box.replaceWith(element);
    done(named);
  };
  const save = async () => {
    const words = field.value.trim();
    if (over || !words || words === title) return end(null);
    try {
      await patch(`/sessions/${encodeURIComponent(id)}`, { title: words });
      end(words);
    } catch (error) {
      fill(problem, error.message).hidden = false;
    }
  };
  field.addEventListener("keydown", (event) => {
    if (event.isComposing || !["Enter", "Escape"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Enter") save();
    else end(null);
  });
  field.addEventListener("blur", save);
  element.replaceWith(box);
  field.focus();
  field.select();
}
