/** The panel of background jobs: running ones with their latest output, ended ones collapsed below. */

import { get, post, Refused } from "../feed/api.js";
import { formatDuration, startTicking, formatTime } from "../dom/clock.js";
import { announce, button, fill, h, icon } from "../dom/elements.js";
import { place, Problem } from "../dom/forms.js";
import { hasFailed, isRunning, outcome, stateOf } from "../cards/job_states.js";
import { t } from "../dom/more_texts.js";
import { jobOutput } from "../feed/output.js";
import { firstLine, lines } from "./jobs.js";
import { Tail } from "../terminal/output_tail.js";

const LINES = 3; // of a command before it is expanded

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
    this.problem = new Problem();
    this.#tail = this.#newTail();
    this.words = h("span", {});
    const state = h("p", { class: "job-state" }, icon("play"), this.words, this.elapsed);
    this.#offerStop();
    this.#stop = startTicking(() => this.#tick());
    this.#tick();
    this.update(this.job);
    const props = {
      class: "job",
      dataset: { job: this.job.id },
      "aria-label": t("job.label", { command: firstLine(this.job) }),
    };
    return h("li", props, command(this.job), state, this.#tail.element, this.problem.element, this.foot);
  }

  #newTail() {
    return new Tail({ label: t("job.tail"), whole: jobOutput(this.job.id), name: this.job.id });
  }

  #ended() {
    const { job } = this;
    const tail = h("div", { class: "job-tail" });
    const failed = hasFailed(job);
    const props = { class: failed ? "job-outcome wrong" : "job-outcome" };
    const state = h("span", props, icon(failed ? "warn" : "check"), outcome(job));
    const title = h("span", { class: "job-title" }, h("code", { dir: "ltr" }, firstLine(job)), state);
    const took = job.ended && job.started ? ` · ${formatDuration(job.ended - job.started)}` : "";
    const facts = h("p", { class: "faint" }, `${formatTime(job.ended ?? job.created)}${took}`);
    const foot = h("div", { class: "job-foot" }, this.#link());
    const details = h("details", { class: "job-details" }, h("summary", {}, title), command(job), facts, tail, foot);
    details.addEventListener("toggle", () => details.open && !this.#tail && this.#showOutput(tail));
    return h("li", { class: "job", dataset: { job: job.id } }, details);
  }

  /** Loads the last lines of a job that has ended when its row is expanded. */
  async #showOutput(box) {
    this.#tail = this.#newTail();
    try {
      const seen = await get(`/jobs/${encodeURIComponent(this.job.id)}`);
      box.append(seen.tail.length ? this.#tail.element : h("p", { class: "faint" }, t("job.silent")));
      this.#tail.show(seen);
      this.#tail.end();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.#tail = null;
      box.replaceChildren(h("p", { class: "problem" }, error.message));
    }
  }

  #link() {
    const { session } = this.job;
    const onclick = (event) => {
      event.preventDefault();
      this.#page.conversation.open(session);
    };
    return h("a", { href: `#${session}`, onclick }, t("job.conversation"));
  }

  #offerStop() {
    const stop = button([icon("stop"), t("job.stop")], () => this.#confirm(), { class: "danger" });
    fill(this.foot, this.#link(), stop);
    return stop;
  }

  #confirm() {
    const sure = button(t("job.stop.sure"), () => this.#cancel(sure), { class: "danger" });
    const back = button(t("job.stop.keep"), () => this.#offerStop().focus());
    fill(this.foot, h("span", { class: "job-confirm" }, t("job.stop.question")), back, sure);
    back.focus();
  }

  async #cancel(sure) {
    sure.disabled = true;
    try {
      await post(`/jobs/${encodeURIComponent(this.job.id)}/cancel`);
      announce(t("job.stopped"));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.#offerStop();
      this.problem.show(error.message);
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
    this.words.textContent = stateOf(job);
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
  const props = { class: "job-command", dir: "ltr", tabindex: 0, role: "group", "aria-label": t("job.command") };
  const block = h("pre", props, all.slice(0, LINES).join("\n"));
  if (all.length <= LINES) return block;
  const expand = () => {
    block.textContent = all.join("\n");
    more.remove();
    block.focus();
  };
  const more = button(t("job.command.more", { count: all.length - LINES }), expand, { class: "job-more" });
  return [block, more];
}

class JobsPanel {
  #page;
  #rows = new Map();
  #unwatch = () => undefined;
  #running = h("ul", { class: "job-list", "aria-label": t("jobs.running.title") });
  #ended = h("ul", { class: "job-list", "aria-label": t("jobs.ended") });

  constructor(page) {
    this.#page = page;
    const explained = h("p", { class: "faint" }, t("jobs.explained"));
    this.empty = h("div", { class: "jobs-empty" }, h("p", {}, t("jobs.empty")), explained);
    this.head = h("h3", { class: "jobs-head" }, t("jobs.ended"));
    this.element = h("div", { class: "jobs" }, this.empty, this.#running, this.head, this.#ended);
  }

  toggle(opener) {
    this.#unwatch();
    const close = { closed: () => this.#close() };
    if (!this.#page.panel.toggle("jobs", t("jobs.title"), this.element, opener, close)) return;
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
    const listed = new Set(jobs.map(({ id }) => id));
    for (const [id, row] of this.#rows) {
      if (listed.has(id)) continue;
      row.close();
      this.#rows.delete(id);
    }
    const elements = (some) => some.map((job) => this.#row(job).element);
    // A row that is not moved keeps its scroll position and the focus.
    place(this.#running, elements(running));
    place(this.#ended, elements(ended));
    this.empty.hidden = running.length > 0;
    this.#running.hidden = !running.length;
    this.head.hidden = this.#ended.hidden = !ended.length;
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
