/** Reads the complete output of a call or a job from the server, in pieces. */

import { get } from "./api.js";

const POLL_MS = 500; // while it is running
const MAX_READS = 1_000; // upper limit of one reading, so that a server cannot keep it going endlessly

/** Reads of a call's output: see GET /runs/{run}/calls/{call}/output. */
export function callOutput(run, call) {
  const path = `/runs/${encodeURIComponent(run)}/calls/${encodeURIComponent(call)}/output`;
  return (after) => get(`${path}?after=${after}`);
}

/**
 * The pieces of text from the beginning to the current end; with `follow` to the final end, as long as `wanted()`.
 * A line marks text that is no longer stored. Raises Refused.
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
