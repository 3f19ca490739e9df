/** What is allowed for the open conversation: a button that says how much it is, hidden where nothing is allowed. */

import { get, Refused } from "./api.js";
import { fill, h, icon } from "./dom.js";
import { fetching } from "./forms.js";

const LONGEST_MS = 3_600_000; // browsers take no longer waits for sure
let timer = null;

/** For the bar. */
export function grantsButton(page) {
  const words = h("span", {});
  const button = h(
    "button",
    {
      type: "button",
      class: "status-item",
      "aria-expanded": "false",
      hidden: true,
      title: "What runs in this conversation without asking",
      onclick: fetching(
        () => import("./grants_panel.js"),
        (panel) => panel.toggle(page, button),
      ),
    },
    icon("check"),
    words,
  );
  page.store.watch("grants", (grants) => {
    button.hidden = !grants.length;
    fill(words, `${grants.length}`, h("span", { class: "status-brief" }, " allowed"));
  });
  page.store.watch("session", () => refresh(page));
  page.store.watch("resolved", ({ decision, scope }) => {
    if (decision === "approved" && scope === "session") refresh(page);
  });
  return button;
}

/** Asks the server again; and once more when the first of them ends. */
export async function refresh(page) {
  const session = page.store.get("session");
  const grants = session ? await grantsOf(session) : [];
  if (page.store.get("session") !== session) return;
  page.store.set({ grants });
  clearTimeout(timer);
  const ends = grants.map((one) => one.expires_at).filter(Boolean);
  if (!ends.length) return;
  const left_ms = Math.min(...ends) * 1000 - Date.now();
  timer = setTimeout(() => refresh(page), Math.min(Math.max(left_ms, 1_000), LONGEST_MS));
}

async function grantsOf(session) {
  try {
    return (await get(`/sessions/${encodeURIComponent(session)}/grants`)).grants;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return []; // the conversation is gone, or the connection, which is told elsewhere
  }
}
