/** The whole output of a call or a job, read in pieces from the server. */

import { get } from "./api.js";

const POLL_MS = 500; // while it goes on
const MAX_READS = 1_000; // pieces at most that one reading takes: no server keeps it going for ever

/** Reads of a call's output: see GET /runs/{run}/calls/{call}/output. */
export function callOutput(run, call) {
  const path = `/runs/${encodeURIComponent(run)}/calls/${encodeURIComponent(call)}/output`;
  return (after) => get(`${path}?after=${after}`);
}

/**
 * The pieces of text from the beginning to what there is by now; with `follow` to the end, for as long as `wanted()`.
 * Where something is not kept any more a line says so. Raises Refused.
 */
export async function* readPieces(whole, { follow = false, wanted = () => true } = {}) {
  let after = 0;
  for (let read = 0; wanted() && (follow || read < MAX_READS); read++) {
    const piece = await whole(after);
    if (!wanted()) return;
    if (piece.from > after) yield `\n[${(piece.from - after).toLocaleString()} characters are not stored]\n`;
    if (piece.text) yield piece.text;
    const stands = piece.next <= after;
    after = Math.max(after, piece.next);
    if (piece.next < piece.characters && !stands) continue;
    if (piece.done || !follow) return;
    await pause(POLL_MS);
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
