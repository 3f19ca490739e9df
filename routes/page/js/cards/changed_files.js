/** The files that a call has created, modified or deleted, below its card: each opens a preview. */

import { button, h, icon } from "../dom/elements.js";
import { escapeLine } from "../text/exact_text.js";
import { formatDecimal, t, ts } from "../dom/texts.js";

const MARKS = { created: "+", modified: "~", deleted: "−" };
const CHANGES = ts("files.change", Object.keys(MARKS));

export class ChangedFiles {
  #list = h("ul", { class: "changed-files", "aria-label": t("files.changed"), hidden: true });

  /** `session` is a function: a new conversation has its id only later. */
  constructor(session) {
    this.session = session;
    this.element = this.#list;
  }

  add(event) {
    const { path, change, size, kind, unkept } = event;
    const mark = h("span", { class: "faint", "aria-hidden": "true" }, MARKS[change] ?? "");
    const name = h("bdi", {}, escapeLine(path));
    const words = [CHANGES[change], size === undefined ? null : formatSize(size), unkept ? t("files.unkept") : null];
    const facts = h("span", { class: "faint", title: unkept ?? "" }, words.filter(Boolean).join(", "));
    const open = async () => (await import("./file_preview.js")).openFile(event, this.session());
    const props = { class: "file-chip", title: t("files.show", { path: escapeLine(path) }) };
    const shown = [mark, icon("file"), name, facts];
    const isShown = change !== "deleted" && kind !== "inode/directory";
    const row = isShown ? button(shown, open, props) : h("span", { class: "file-chip" }, shown);
    this.#list.append(h("li", {}, row));
    this.#list.hidden = false;
  }
}

export function formatSize(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  const units = ["KB", "MB", "GB", "TB"];
  let size = bytes,
    at = -1;
  while (size >= 1024 && at < units.length - 1) {
    size /= 1024;
    at++;
  }
  return `${formatDecimal(size)} ${units[at]}`;
}
