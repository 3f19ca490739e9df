/** The background job that a call has started, on the call's card: its output while it runs, and a stop button. */

import { get, post, Refused } from "../feed/api.js";
import { jobOutput } from "../feed/output.js";
import { announce, button, h, icon } from "../dom/elements.js";
import { Problem } from "../dom/forms.js";
import { formatDuration, startTicking } from "../dom/clock.js";
import { t } from "../dom/more_texts.js";
import { Tail } from "../terminal/output_tail.js";
import { hasFailed, isRunning, outcome, stateOf } from "./job_states.js";

export class JobTail {
  #id;
  #job = null;
  #unwatch;
  #untick = () => undefined;

  constructor(id, store) {
    this.#id = id;
    this.tail = new Tail({ label: t("job.tail"), whole: jobOutput(id), name: id });
    this.words = h("span", {});
    this.elapsed = h("span", { class: "job-elapsed" });
    const words = [icon("stop"), h("span", {}, t("job.stop"))];
    this.stop = button(words, () => this.#cancel(), { class: "card-stop", hidden: true });
    this.output = button(t("job.output"), () => this.#showOutput(), { class: "quiet", hidden: true });
    this.problem = new Problem();
    const state = h("p", { class: "job-state" }, icon("jobs"), this.words, this.elapsed, this.output, this.stop);
    this.element = h("div", { class: "card-job", hidden: true }, state, this.tail.element, this.problem.element);
    this.#unwatch = store.watch("jobs", (jobs) => this.#update(jobs.find((job) => job.id === id)));
  }

  /** The conversation was switched. */
  leave() {
    this.#unwatch();
    this.#untick();
  }

  #update(job) {
    if (!job) return void (this.element.hidden ||= !this.#job);
    const wasRunning = this.#job && isRunning(this.#job);
    const runs = isRunning(job);
    this.#job = job;
    this.element.hidden = false;
    this.words.textContent = t("job.is", { state: runs ? stateOf(job) : outcome(job) });
    this.words.parentElement.classList.toggle("wrong", !runs && hasFailed(job));
    if (runs && job.tail) this.tail.show(job);
    if (runs && !wasRunning) this.#untick = startTicking(() => this.#tick());
    if (!runs) this.#end(wasRunning);
    const focused = document.activeElement === this.stop;
    this.stop.hidden = !runs;
    if (focused && !runs) this.tail.box.focus({ preventScroll: true }); // hiding must not lose the focus
    this.#tick();
  }

  #end(wasRunning) {
    this.#untick();
    if (wasRunning) this.#showOutput();
    else this.output.hidden = !this.tail.element.hidden;
  }

  #tick() {
    const { started, created, ended } = this.#job;
    this.elapsed.textContent = formatDuration((ended ?? Date.now() / 1_000) - (started ?? created));
  }

  /** The last lines of a job that has ended. */
  async #showOutput() {
    const seen = await this.#attempt(() => get(`/jobs/${encodeURIComponent(this.#id)}`));
    if (!seen) return;
    const focused = document.activeElement === this.output;
    this.output.hidden = true;
    this.tail.show(seen);
    this.tail.end();
    if (!seen.tail.length) this.words.textContent = `${this.words.textContent} · ${t("job.silent")}`;
    if (focused) this.tail.box.focus({ preventScroll: true });
  }

  async #cancel() {
    if (this.stop.ariaDisabled) return;
    this.stop.ariaDisabled = "true"; // a disabled button would lose the focus
    const done = await this.#attempt(() => post(`/jobs/${encodeURIComponent(this.#id)}/cancel`));
    if (done) announce(t("job.stopped"));
    else this.stop.ariaDisabled = null;
  }

  async #attempt(work) {
    this.problem.show("");
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.problem.show(error.message);
      return null;
    }
  }
}
