/** Runs of a session as the server has them: asked for, drawn again from their events, and in their order. */

import { get } from "../feed/api.js";
import { yieldToBrowser, forEachInSlices } from "../dom/scheduling.js";

/** What GET /sessions/{id}/log says. Raises Refused. */
export const fetchLog = (session, query) =>
  get(`/sessions/${encodeURIComponent(session)}/log?${new URLSearchParams(query)}`);

/** Draws a run from its events. False if nobody wants it any more. */
export async function replay(view, events, wanted) {
  view.restoring = true;
  const whole = await forEachInSlices(events, (event) => view.add(event), wanted);
  view.restored();
  await yieldToBrowser();
  return whole && wanted();
}

/**
 * The views, with `view` behind those of runs that were created before its own. Clocks differ: what is known by the
 * clock of this browser alone (`asked.here`) counts as earlier.
 */
export function inOrder(views, view) {
  const others = views.filter((one) => one !== view);
  const { created } = view.asked;
  const at = others.findLastIndex(({ asked }) => asked.here || asked.created <= created) + 1;
  return others.toSpliced(at, 0, view);
}
