/**
 * The files that a run has changed and that run on the owner's machine when the owner works there as usual, each with
 * the command that runs it (`runs_at` of `file.changed`) and a button that shows it.
 */

import { h } from "../dom/elements.js";
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
    const more = events.length - MOST;
    return h(
      "section",
      { class: "note owner-files", "aria-label": t("run.owner") },
      h("p", {}, t("run.owner")),
      h(
        "ul",
        {},
        events.slice(0, MOST).map((event) => row(event, run, session)),
      ),
      more > 0 ? h("p", { class: "faint" }, t("run.owner.more", { count: more })) : null,
    );
  }
}

function row(event, run, session) {
  const path = escapeLine(event.path);
  const onclick = () => show(event, run, session);
  const name = t("run.owner.show_path", { path });
  return h(
    "li",
    {},
    h(
      "span",
      {},
      h("bdi", {}, path),
      h("span", { class: "faint" }, ` ${t("run.owner.at", { command: event.runs_at })}`),
    ),
    h("button", { type: "button", class: "foot-button", "aria-label": name, onclick }, t("run.owner.show")),
  );
}

/** What is different in it; of a new file, and of one that is not kept, what is in it. */
async function show(event, run, session) {
  if (event.change === "modified" && !event.unkept) (await import("./run_changes.js")).openChanges(run, event.path);
  else (await import("../cards/file_preview.js")).openFile(event, session);
}
