/** The panel of background jobs: running ones with their latest output, ended ones collapsed below. */

import { get, post, Refused } from "../feed/api.js";
import { formatDuration, startTicking, formatTime } from "../dom/clock.js";
import { fill, h, icon, announce } from "../dom/elements.js";
import { firstLine, lines, outcome, STATES, isRunning } from "./jobs.js";
import { Tail } from "../terminal/output_tail.js";

const LINES = 3; // of a command before it is expanded
const output = (job) => (after) => get(`/jobs/${encodeURIComponent(job)}/output?after=${after}`);

/** Whether the job ended in a way that needs attention. */
const hasFailed = ({ state, exit_code: code }) => (state === "exited" ? code !== 0 : state !== "cancelled");

class JobRow {
  #page;
  #stop = () => undefined;
  #tail = null;

  constructor(job, page) {
    this.job = job;
    this.#page = page;
    this.element = isRunning(job) ? this.#live() : this.#ended();
  }

  #live() {
    this.elapsed = h("span", { class: "job-elapsed" });
    this.foot = h("div", { class: "job-foot" });
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.#tail = new Tail({ label: "Last lines of the job", whole: output(this.job.id) });
    this.words = h("span", {});
    const state = h("p", { class: "job-state" }, icon("play"), this.words, this.elapsed);
    this.#offerStop();
    this.#stop = startTicking(() => this.#tick());
    this.#tick();
    this.update(this.job);
    const props = { class: "job", dataset: { job: this.job.id }, "aria-label": `Job ${firstLine(this.job)}` };
    return h("li", props, command(this.job), state, this.#tail.element, this.problem, this.foot);
  }

  #ended() {
    const { job } = this;
    const tail = h("div", { class: "job-tail" });
    const state = h(
      "span",
      { class: hasFailed(job) ? "job-outcome wrong" : "job-outcome" },
      icon(hasFailed(job) ? "warn" : "check"),
      outcome(job),
    );
    const title = h("span", { class: "job-title" }, h("code", { dir: "ltr" }, firstLine(job)), state);
    const took = job.ended && job.started ? ` · ${formatDuration(job.ended - job.started)}` : "";
    const facts = h("p", { class: "faint" }, `${formatTime(job.ended ?? job.created)}${took}`);
    const details = h(
      "details",
      { class: "job-details" },
      h("summary", {}, title),
      command(job),
      facts,
      tail,
      h("div", { class: "job-foot" }, this.#link()),
    );
    details.addEventListener("toggle", () => details.open && !this.#tail && this.#showOutput(tail));
    return h("li", { class: "job", dataset: { job: job.id } }, details);
  }

  /** Loads the last lines of a job that has ended when its row is expanded. */
  async #showOutput(place) {
    this.#tail = new Tail({ label: "Last lines of the job", whole: output(this.job.id) });
    try {
      const seen = await get(`/jobs/${encodeURIComponent(this.job.id)}`);
      if (seen.tail.length) place.append(this.#tail.element);
      else place.append(h("p", { class: "faint" }, "No output."));
      this.#tail.show(seen);
      this.#tail.end();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.#tail = null;
      place.replaceChildren(h("p", { class: "problem" }, error.message));
    }
  }

  #link() {
    const { session } = this.job;
    const onclick = (event) => {
      event.preventDefault();
      this.#page.conversation.open(session);
    };
    return h("a", { href: `#${session}`, onclick }, "Its conversation");
  }

  #offerStop() {
    const stop = h("button", { type: "button", class: "danger", onclick: () => this.#confirm() }, icon("stop"), "Stop");
    fill(this.foot, this.#link(), stop);
    return stop;
  }

  #confirm() {
    const sure = h("button", { type: "button", class: "danger", onclick: () => this.#cancel(sure) }, "Stop it");
    const back = h("button", { type: "button", onclick: () => this.#offerStop().focus() }, "Keep running");
    fill(this.foot, h("span", { class: "job-confirm" }, "Stop this job and all processes it started?"), back, sure);
    back.focus();
  }

  async #cancel(button) {
    button.disabled = true;
    try {
      await post(`/jobs/${encodeURIComponent(this.job.id)}/cancel`);
      announce("The job was stopped.");
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.#offerStop();
      this.problem.textContent = error.message;
      this.problem.hidden = false;
    }
  }

  #tick() {
    this.elapsed.textContent = formatDuration(Date.now() / 1000 - (this.job.started ?? this.job.created));
  }

  /** Whether this row can show the new state: a job that has ended gets a new row. */
  update(job) {
    if (isRunning(job) !== isRunning(this.job)) return false;
    this.job = job;
    if (!isRunning(job)) return true;
    this.words.textContent = STATES[job.state];
    if (job.tail) this.#tail.show(job);
    return true;
  }

  close() {
    this.#stop();
    this.#tail?.end();
    this.element.remove();
  }
}

/** The complete command, collapsed after its first lines. */
function command(job) {
  const all = lines(job);
  const block = h(
    "pre",
    { class: "job-command", dir: "ltr", tabindex: 0, role: "group", "aria-label": "Command" },
    all.slice(0, LINES).join("\n"),
  );
  if (all.length <= LINES) return block;
  const more = h("button", { type: "button", class: "job-more" }, `${all.length - LINES} more lines`);
  more.addEventListener("click", () => {
    block.textContent = all.join("\n");
    more.remove();
    block.focus();
  });
  return [block, more];
}

class JobsPanel {
  #page;
  #rows = new Map();
  #unwatch = () => undefined;
  #running = h("ul", { class: "job-list", "aria-label": "Running" });
  #ended = h("ul", { class: "job-list", "aria-label": "Ended" });

  constructor(page) {
    this.#page = page;
    this.empty = h(
      "div",
      { class: "jobs-empty" },
      h("p", {}, "No jobs are running."),
      h(
        "p",
        { class: "faint" },
        "A job is a command that runs in the background; it outlives the turn that started it, and the server. Request one in a message: “Run the tests in the background.” Its output appears here, and when it ends its conversation is notified.",
      ),
    );
    this.head = h("h3", { class: "jobs-head" }, "Ended");
    this.element = h("div", { class: "jobs" }, this.empty, this.#running, this.head, this.#ended);
  }

  toggle(opener) {
    this.#unwatch();
    const close = { closed: () => this.#close() };
    if (!this.#page.panel.toggle("jobs", "Background jobs", this.element, opener, close)) return;
    this.#unwatch = this.#page.store.watch("jobs", (jobs) => this.#draw(jobs));
  }

  #close() {
    this.#unwatch();
    for (const row of this.#rows.values()) row.close();
    this.#rows.clear();
  }

  #draw(jobs) {
    const running = jobs.filter(isRunning);
    const ended = jobs.filter((job) => !isRunning(job)).sort((one, other) => (other.ended ?? 0) - (one.ended ?? 0));
    const gone = new Set(this.#rows.keys());
    this.#place(this.#running, running, gone);
    this.#place(this.#ended, ended, gone);
    for (const id of gone) {
      this.#rows.get(id).close();
      this.#rows.delete(id);
    }
    this.empty.hidden = running.length > 0;
    this.#running.hidden = !running.length;
    this.head.hidden = this.#ended.hidden = !ended.length;
  }

  #place(list, jobs, gone) {
    jobs.forEach((job, place) => {
      gone.delete(job.id);
      const element = this.#row(job).element;
      // A row that is not moved keeps its scroll position and the focus.
      if (list.children[place] !== element) list.insertBefore(element, list.children[place] ?? null);
    });
  }

  #row(job) {
    const known = this.#rows.get(job.id);
    if (known?.update(job)) return known;
    known?.close();
    const row = new JobRow(job, this.#page);
    this.#rows.set(job.id, row);
    return row;
  }
}

let panel = null; // shared, so that rows keep their expanded state

/** Opens the panel, or closes it. */
export function toggle(page, opener) {
  panel ??= new JobsPanel(page);
  panel.toggle(opener);
}
