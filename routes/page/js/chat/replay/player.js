/**
 * Draws a run as it was at one of its events, by the code that draws it live. It keeps what it has drawn until each
 * round: from there it goes back and on, and draws the rest in slices between which the browser can do its own work.
 */

import { h } from "../../dom/elements.js";
import { forEachInSlices, yieldToBrowser } from "../../dom/scheduling.js";
import { quiet } from "../helper_view.js";

export class Player {
  #view;
  #moments;
  #marks; // `{at, mark}` in order: of the view before it draws the event at that position
  #drawn = -1; // the position of the last event that is drawn
  #wanted = -1;
  #busy = null;

  /** `view`: the run as it is now. */
  constructor(view, moments) {
    this.#moments = moments;
    const asked = { ...view.asked, ended: null, state: "running" };
    this.#view = new view.constructor(asked, quiet(view.page, { readOnly: true, isPast: true }));
    this.#view.restoring = true;
    this.#marks = [{ at: 0, mark: this.#view.mark() }];
    this.element = h("div", { class: "replayed" }, this.#view.element);
  }

  /** Draws the run as it was at a position. Resolves once the last one that was asked for is drawn. */
  show(position) {
    this.#wanted = position;
    this.#busy ??= this.#draw().finally(() => (this.#busy = null));
    return this.#busy;
  }

  async #draw() {
    while (this.#drawn !== this.#wanted) {
      await yieldToBrowser(); // what the cursor has brought about is drawn first
      const kept = this.#nextMark();
      if (kept) {
        this.#view.goTo(kept.mark);
        this.#drawn = kept.at - 1;
        continue;
      }
      const events = this.#moments.events.slice(this.#drawn + 1, this.#wanted + 1);
      await forEachInSlices(
        events,
        (event) => this.#add(event),
        () => this.#wanted > this.#drawn,
      );
      this.#view.restored(); // what the run was doing then is shown
      this.#view.restoring = true;
    }
  }

  /** Where to go back to; where to go on to, a round at a time: what is shown again has to be laid out again. */
  #nextMark() {
    if (this.#wanted < this.#drawn) return this.#marks.findLast(({ at }) => at <= this.#wanted);
    return this.#marks.find(({ at }) => at > this.#drawn + 1 && at <= this.#wanted);
  }

  #add(event) {
    const at = this.#drawn + 1;
    const mark = event.type === "round.started" && at > this.#marks.at(-1).at ? this.#view.mark() : null;
    if (mark) this.#marks.push({ at, mark });
    this.#view.add(event);
    this.#drawn = at;
  }

  leave() {
    this.#wanted = this.#drawn;
    this.#view.leave();
    this.element.remove();
  }
}
