/** Reads the complete output of a call or a job from the server, in pieces. */

import { get } from "./api.js";
import { t } from "../dom/texts.js";

const POLL_MS = 500; // while it is running
const MAX_READS = 1_000; // upper limit of one reading, so that a server cannot keep it going endlessly

/** Reads of a call's output: see GET /runs/{run}/calls/{call}/output. */
export function callOutput(run, call) {
  const path = `/runs/${encodeURIComponent(run)}/calls/${encodeURIComponent(call)}/output`;
  return (after) => get(`${path}?after=${after}`);
}

/** Reads of a job's output: see GET /jobs/{job}/output. */
export const jobOutput = (job) => (after) => get(`/jobs/${encodeURIComponent(job)}/output?after=${after}`);

/**
 * The pieces of text from the beginning to the current end; with `follow` to the final end, as long as `wanted()`.
 * `onPiece` gets each answer of the server, `asleep(ms)` waits for more.
 * A line marks text that is no longer stored. Raises Refused.
 */
export async function* readPieces(
  whole,
  { follow = false, wanted = () => true, onPiece = () => undefined, asleep = pause } = {},
) {
  let after = 0;
  for (let read = 0; wanted() && (follow || read < MAX_READS); read++) {
    const piece = await whole(after);
    if (!wanted()) return;
    await onPiece(piece);
    if (piece.from > after) yield `\n[${gap(piece, piece.from - after)}]\n`;
    if (piece.text) yield piece.text;
    const stands = piece.next <= after;
    after = Math.max(after, piece.next);
    if (piece.next < piece.characters && !stands) continue;
    if (piece.done || !follow) return;
    await asleep(POLL_MS);
  }
}

const gap = ({ missing_lines: lines }, characters) =>
  lines ? t("tail.gap.lines", { count: lines }) : t("tail.gap", { count: characters });
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
