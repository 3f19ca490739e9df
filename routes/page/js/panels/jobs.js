/** Background jobs in a few words: their states, their commands, and an announcement when one has ended. */

import { announce } from "../dom/elements.js";
import { escapeText } from "../text/exact_text.js";

export const STATES = {
  starting: "starting",
  running: "running",
  exited: "ended",
  cancelled: "stopped",
  timed_out: "timed out",
  failed: "failed",
  lost: "lost",
  unreachable: "out of reach",
};
const RUNNING = new Set(["starting", "running", "unreachable"]);

export const isRunning = ({ state }) => RUNNING.has(state);

/** The state of a job that has ended, in words: "ended, exit code 3". */
export function outcome({ state, exit_code: code, reason }) {
  const words = STATES[state] ?? state;
  const exit = state === "exited" ? `, exit code ${code}` : "";
  return `${words}${exit}${reason ? `: ${reason}` : ""}`;
}

/** The lines of its command, with invisible characters spelled out. */
export const lines = ({ command: text }) =>
  escapeText(text)
    .replace(/^\s*#!bg[ \t]*\n/, "")
    .trimEnd()
    .split("\n");
export const firstLine = (job) => lines(job)[0].slice(0, 200);

/** Announces each job that ends while the page is open, once. */
export function start(page) {
  let running = new Map();
  page.store.watch("jobs", (jobs) => {
    for (const job of jobs) {
      if (running.has(job.id) && !isRunning(job)) announce(`The job ${firstLine(job)} has ended: ${outcome(job)}`);
    }
    running = new Map(jobs.filter(isRunning).map((job) => [job.id, job]));
  });
}
