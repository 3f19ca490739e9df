/** Sections of the list of conversations: by their days, or under another name. */

import { h } from "../dom/elements.js";
import { t } from "../dom/texts.js";

export const DRAGGED = "application/x-dragoman-session"; // the type of a conversation that is dragged

/** A heading and its rows. */
export function group(name, sessions, rows) {
  const id = `sessions-${name.replace(/\W+/g, "-").toLowerCase()}`;
  const items = sessions.map((session) => rows.get(session.id).element);
  return [h("h2", { class: "session-day", id }, name), h("ul", { class: "sessions", "aria-labelledby": id }, items)];
}

/** `[name, conversations]` by the day of their last use. */
export function byDay(sessions) {
  const days = new Map();
  for (const session of sessions) {
    const name = day(session.updated ?? session.created);
    days.set(name, [...(days.get(name) ?? []), session]);
  }
  return [...days];
}

function day(at) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  const days = Math.ceil((midnight - at * 1000) / 86_400_000);
  if (days <= 0) return t("list.today");
  if (days === 1) return t("list.yesterday");
  return t(days <= 7 ? "list.week" : "list.past");
}
