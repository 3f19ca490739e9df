/** Background jobs in a few words: their states, and how they have ended. */

import { t } from "../dom/texts.js";

const RUNNING = new Set(["starting", "running", "unreachable"]);

export const isRunning = ({ state }) => RUNNING.has(state);
export const stateOf = ({ state }) => t(`job.state.${state}`);

/** Whether the job ended in a way that needs attention. */
export const hasFailed = ({ state, exit_code: code }) => (state === "exited" ? code !== 0 : state !== "cancelled");

/** The state of a job that has ended, in words: "ended, exit code 3". */
export function outcome({ state, exit_code: code, reason }) {
  const words = state === "exited" ? t("job.exited", { code: String(code) }) : stateOf({ state });
  return reason ? `${words}: ${reason}` : words;
}
