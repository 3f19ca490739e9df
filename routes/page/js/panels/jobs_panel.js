/** The panel of background jobs: running ones with their latest output, ended ones collapsed below. */

import { get, post, Refused } from "../feed/api.js";
import { formatDuration, startTicking, formatTime } from "../dom/clock.js";
import { fill, h, icon, announce } from "../dom/elements.js";
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
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.#tail = new Tail({ label: t("job.tail"), whole: jobOutput(this.job.id), name: this.job.id });
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
    this.#tail = new Tail({ label: t("job.tail"), whole: jobOutput(this.job.id), name: this.job.id });
    try {
      const seen = await get(`/jobs/${encodeURIComponent(this.job.id)}`);
      if (seen.tail.length) place.append(this.#tail.element);
      else place.append(h("p", { class: "faint" }, t("job.silent")));
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
    return h("a", { href: `#${session}`, onclick }, t("job.conversation"));
  }

  #offerStop() {
    const stop = h(
      "button",
      { type: "button", class: "danger", onclick: () => this.#confirm() },
      icon("stop"),
      t("job.stop"),
    );
    fill(this.foot, this.#link(), stop);
    return stop;
  }

  #confirm() {
    const sure = h(
      "button",
      { type: "button", class: "danger", onclick: () => this.#cancel(sure) },
      t("job.stop.sure"),
    );
    const back = h("button", { type: "button", onclick: () => this.#offerStop().focus() }, t("job.stop.keep"));
    fill(this.foot, h("span", { class: "job-confirm" }, t("job.stop.question")), back, sure);
    back.focus();
  }

  async #cancel(button) {
    button.disabled = true;
    try {
      await post(`/jobs/${encodeURIComponent(this.job.id)}/cancel`);
      announce(t("job.stopped"));
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
  const block = h(
    "pre",
    { class: "job-command", dir: "ltr", tabindex: 0, role: "group", "aria-label": t("job.command") },
    all.slice(0, LINES).join("\n"),
  );
  if (all.length <= LINES) return block;
  const more = h("button", { type: "button", class: "job-more" }, t("job.command.more", { count: all.length - LINES }));
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
  #running = h("ul", { class: "job-list", "aria-label": t("jobs.running.title") });
  #ended = h("ul", { class: "job-list", "aria-label": t("jobs.ended") });

  constructor(page) {
    this.#page = page;
    this.empty = h(
      "div",
      { class: "jobs-empty" },
      h("p", {}, t("jobs.empty")),
      h("p", { class: "faint" }, t("jobs.explained")),
    );
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
