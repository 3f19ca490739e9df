/** Background jobs: their commands, and an announcement when one has ended. */

import { isRunning, outcome } from "../cards/job_states.js";
import { announce } from "../dom/elements.js";
import { t } from "../dom/texts.js";
import { escapeText } from "../text/exact_text.js";

/** The lines of its command, with invisible characters spelled out. */
export function lines({ command }) {
  const text = escapeText(command).replace(/^\s*#!?bg[ \t]*\n/, "");
  return text.trimEnd().split("\n");
}
export const firstLine = (job) => lines(job)[0].slice(0, 200);

/** Announces each job that ends while the page is open, once. */
export function start(page) {
  let running = new Map();
  page.store.watch("jobs", (jobs) => {
    for (const job of jobs) {
      if (running.has(job.id) && !isRunning(job)) {
        announce(t("job.announced", { command: firstLine(job), state: outcome(job) }));
      }
    }
    running = new Map(jobs.filter(isRunning).map((job) => [job.id, job]));
  });
}
