/** The log of a session: fetches its runs, replays their events, and keeps their order. */

import { get } from "../feed/api.js";
import { yieldToBrowser, forEachInSlices } from "../dom/scheduling.js";

/** The response of GET /sessions/{id}/log. Raises Refused. */
export const fetchLog = (session, query) =>
  get(`/sessions/${encodeURIComponent(session)}/log?${new URLSearchParams(query)}`);

/** Replays the events of a run. False if it was cancelled. */
export async function replay(view, events, wanted) {
  view.restoring = true;
  const whole = await forEachInSlices(events, (event) => view.add(event), wanted);
  view.restored();
  await yieldToBrowser();
  return whole && wanted();
}

/**
 * Inserts `view` after the runs created before its own. Clocks differ: a run that has only a time of
 * this browser (`asked.here`) counts as earlier.
 */
export function inOrder(views, view) {
  const others = views.filter((one) => one !== view);
  const { created } = view.asked;
  const at = others.findLastIndex(({ asked }) => asked.here || asked.created <= created) + 1;
  return others.toSpliced(at, 0, view);
}
