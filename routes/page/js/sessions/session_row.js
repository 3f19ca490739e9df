/** A conversation in the list: a link, its state, and a menu. */

import { patch } from "../feed/api.js";
import { formatTime } from "../dom/clock.js";
import { announce, button, fill, h, icon } from "../dom/elements.js";
import { problemLine, Problem } from "../dom/forms.js";
import { DRAGGED } from "./list_groups.js";
import { Menu } from "../dom/menu.js";
import { t } from "../dom/texts.js";

export class SessionRow {
  #page;
  #marks = "";

  constructor(session, page) {
    this.#page = page;
    this.session = session;
    this.title = h("span", { class: "session-title", dir: "auto" });
    this.state = h("span", { class: "session-state" });
    this.labels = h("span", { class: "session-labels" });
    this.time = h("span", { class: "session-time" });
    this.snippet = h("span", { class: "session-snippet", dir: "auto" });
    this.link = h("a", { href: `#${session.id}`, class: "session-link", onclick: (event) => this.#open(event) });
    this.link.tabIndex = -1;
    this.link.append(this.title, this.time, this.state, this.labels, this.snippet);
    this.more = button(icon("more"), null, { class: "quiet session-more", tabindex: -1 });
    this.menu = new Menu(this.more, () => this.#actions());
    this.element = h("li", { class: "session" }, this.link, this.more, this.menu.element);
    this.#makeDraggable();
  }

  /** What the mouse drags to a folder, the menu moves there, too. */
  #makeDraggable() {
    this.link.draggable = true;
    this.link.addEventListener("dragstart", ({ dataTransfer }) => {
      dataTransfer.setData(DRAGGED, this.session.id);
      dataTransfer.effectAllowed = "move";
      this.element.classList.add("dragged");
    });
    this.link.addEventListener("dragend", () => this.element.classList.remove("dragged"));
  }

  /** `twin`: another one has the same title, so that the time tells them apart. */
  show(session, twin = false) {
    this.session = session;
    this.time.textContent = twin ? formatTime(session.updated ?? session.created) : "";
    const title = session.title || t("list.untitled");
    if (this.title.textContent !== title || session.title_marks || this.title.firstElementChild)
      fill(this.title, marked(title, session.title_marks));
    this.more.setAttribute("aria-label", t("list.more", { title }));
    const labels = session.labels ?? [];
    const key = session.conversation && h("span", { class: "faint", dir: "auto" }, session.conversation);
    if (this.labels.childElementCount !== labels.length + Boolean(key))
      fill(this.labels, ...labels.map((label) => h("span", { class: "badge label" }, label)), key);
    fill(this.snippet, marked(session.snippet ?? "", session.marks));
    this.snippet.hidden = !session.snippet;
    this.link.title = session.summary ?? "";
  }

  /** The state is a dot, with a text as its name: words would cut the title. */
  mark({ open, running, waiting }) {
    const marks = [open, running, waiting].join();
    if (marks === this.#marks) return;
    this.#marks = marks;
    if (open) this.link.setAttribute("aria-current", "page");
    else this.link.removeAttribute("aria-current");
    const words = waiting ? t("list.waiting", { count: waiting }) : running ? t("list.working") : "";
    this.state.className = `session-state ${waiting ? "asks" : running ? "pulse" : ""}`;
    this.state.title = words;
    fill(
      this.state,
      waiting > 1 && h("span", { "aria-hidden": "true" }, waiting),
      h("span", { class: "visually-hidden" }, words),
    );
  }

  /** Follows the link; a place that a search has found is shown at its turn. */
  #open(event) {
    const { id, run } = this.session;
    this.#page.drawer.close();
    if (!run || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    this.#guard(this.#act("showTurn", id, run));
  }

  #actions() {
    const { pinned, archived, labels } = this.session;
    const row = (key, sign, ...given) => [t(`list.${key}`), sign, () => this.#guard(this.#act(...given))];
    return [
      [t("list.rename"), "pencil", () => this.rename()],
      row(pinned ? "unpin" : "pin", "pin", "change", { pinned: !pinned }),
      row("move", "folder", "move"),
      archived
        ? row("archive.restore", "archive", "change", { archived: false }, "list.restored")
        : row("archive.put", "archive", "change", { archived: true }, "list.archived"),
      row("share", "link", "share"),
      row("options", "gear", "options"),
      ...(labels ? [row("labels", "check", "label")] : []),
      ...["markdown", "html", "responses", "json"].map((one) => row(`export.${one}`, "save", "exported", one)),
      row("delete", "bin", "deleted"),
    ];
  }

  /** Does something whose code few need. */
  async #act(name, ...given) {
    const actions = await import("./row_actions.js");
    await actions[name](this.#page, this, ...given);
  }

  #guard(doing) {
    doing.catch((error) => {
      announce(error.message, { urgent: true });
      this.element.querySelector(".problem")?.remove();
      this.element.append(problemLine(error));
    });
  }

  rename() {
    renameField(this.link, this.session, (title) => {
      if (title) this.session = { ...this.session, title };
      this.show(this.session);
      this.#page.sessions.refresh();
      this.more.focus();
    });
  }
}

/** Replaces `element` by a text field; `done(title)` with the new title, or null if unchanged. */
export function renameField(element, { id, title }, done) {
  const props = { class: "rename", maxlength: 200, "aria-label": t("list.title"), dir: "auto" };
  const field = h("input", { ...props, value: title ?? "" });
  const problem = new Problem();
  const box = h("span", { class: "renaming" }, field, problem.element);
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
      problem.show(error.message);
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

/** The text with `<mark>` around its places, `[from, to]` in code points. */
function marked(text, places) {
  if (!places?.length) return [text];
  const characters = Array.from(text);
  const part = (from, to) => characters.slice(from, to).join("");
  const ends = [0, ...places.map(([, to]) => to)];
  const found = places.flatMap(([from, to], at) => [part(ends[at], from), h("mark", {}, part(from, to))]);
  return [...found, part(ends.at(-1))];
}
