/** The grants of the open conversation: calls that run without approval. */

import { get, Refused } from "../feed/api.js";

const LONGEST_MS = 3_600_000; // browsers do not keep longer timers reliably
let timer = null;

/** Keeps `grants` in the store up to date. */
export function watchGrants(page) {
  page.store.watch("session", () => refresh(page));
  page.store.watch("resolved", ({ decision, scope }) => {
    if (decision === "approved" && scope === "session") refresh(page);
  });
}

/** Fetches the grants, and once more when the first of them expires. */
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
    return []; // the conversation is gone, or the connection, which connection_line.js reports
  }
}
