/**
 * The files that a run has changed and that run on the owner's machine when the owner works there as usual, each with
 * the command that runs it (`runs_at` of `file.changed`) and a button that shows it.
 */

import { button, h } from "../dom/elements.js";
import { t } from "../dom/texts.js";
import { escapeLine } from "../text/exact_text.js";

const MOST = 8; // listed; "Changes" has all

export class OwnerFiles {
  #events = new Map(); // the last of each path

  add(event) {
    this.#events.delete(event.path);
    if (event.runs_at && event.change !== "deleted") this.#events.set(event.path, event);
  }

  /** The list, or null where there is nothing to list. */
  element(run, session) {
    const events = [...this.#events.values()];
    if (!events.length) return null;
    const count = events.length - MOST;
    const rows = events.slice(0, MOST).map((event) => row(event, run, session));
    const more = count > 0 && h("p", { class: "faint" }, t("run.owner.more", { count }));
    const props = { class: "note owner-files", "aria-label": t("run.owner") };
    return h("section", props, h("p", {}, t("run.owner")), h("ul", {}, rows), more);
  }
}

function row(event, run, session) {
  const path = escapeLine(event.path);
  const props = { class: "foot-button", "aria-label": t("run.owner.show_path", { path }) };
  const shows = button(t("run.owner.show"), () => show(event, run, session), props);
  const how = h("span", { class: "faint" }, ` ${t("run.owner.at", { command: event.runs_at })}`);
  return h("li", {}, h("span", {}, h("bdi", {}, path), how), shows);
}

/** What is different in it; of a new file, and of one that is not kept, what is in it. */
async function show(event, run, session) {
  if (event.change === "modified" && !event.unkept)
    (await import("./run_changes.js")).openChanges({ run, session }, event.path);
  else (await import("../cards/file_preview.js")).openFile(event, session);
}
