/** Background jobs in a few words: how many run, and that one has ended. What they write is in jobs_panel.js. */

import { h, icon, say } from "./dom.js";
import { spelled } from "./exact.js";
import { fetching } from "./forms.js";

export const STATES = {
  starting: "starting",
  running: "running",
  exited: "ended",
  cancelled: "stopped",
  timed_out: "ran out of time",
  failed: "failed",
  lost: "lost",
};
const UNDER_WAY = new Set(["starting", "running"]);

export const underWay = ({ state }) => UNDER_WAY.has(state);

/** What became of it, in words: "ended, exit code 3". */
export function outcome({ state, exit_code: code, reason }) {
  const words = STATES[state] ?? state;
  const exit = state === "exited" ? `, exit code ${code}` : "";
  return `${words}${exit}${reason ? `: ${reason}` : ""}`;
}

/** Of its command. */
export const lines = ({ command: text }) =>
  spelled(text)
    .replace(/^\s*#!bg[ \t]*\n/, "")
    .trimEnd()
    .split("\n");
export const firstLine = (job) => lines(job)[0].slice(0, 200);

/** How many run, as a button that opens the panel. */
export function jobsButton(page) {
  const words = h("span", {}, "Jobs");
  const button = h(
    "button",
    {
      type: "button",
      class: "status-item jobs-button",
      "aria-expanded": "false",
      onclick: fetching(
        () => import("./jobs_panel.js"),
        (panel) => panel.open(page, button),
      ),
    },
    icon("jobs"),
    words,
  );
  page.store.watch("jobs", (jobs) => {
    const running = jobs.filter(underWay).length;
    words.textContent = running ? `${running} ${running === 1 ? "job runs" : "jobs run"}` : "Jobs";
    button.dataset.count = running; // where there is no room for words
    button.classList.toggle("busy", running > 0);
  });
  return button;
}

/** Tells once of each job that ends while the page is there. */
export function start(page) {
  let running = new Map();
  page.store.watch("jobs", (jobs) => {
    for (const job of jobs) {
      if (running.has(job.id) && !underWay(job)) say(`The job ${firstLine(job)} has ended: ${outcome(job)}`);
    }
    running = new Map(jobs.filter(underWay).map((job) => [job.id, job]));
  });
}
