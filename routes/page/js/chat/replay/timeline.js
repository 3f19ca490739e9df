/** The line of a run's time as a slider: rounds, calls, waits for a person, and the cursor, which stands at an event. */

import { h } from "../../dom/elements.js";
import { t } from "../../dom/more_texts.js";
import { nameOf } from "../../cards/call_title.js";

const MOST_SPANS = 400; // drawn; of more the longest

export class Timeline {
  position;
  #moments;
  #cursor = h("span", { class: "replay-cursor" });

  /** `onMove(position)` when the reader moves the cursor. */
  constructor(moments, onMove) {
    this.#moments = moments;
    this.onMove = onMove;
    const props = { role: "slider", tabindex: 0, "aria-label": t("replay.line"), "aria-valuemin": 1 };
    const listeners = {
      onkeydown: (event) => this.#key(event),
      onpointerdown: (event) => this.#press(event),
      onpointermove: (event) => this.element.hasPointerCapture(event.pointerId) && this.#moveTo(event),
    };
    const drawn = [...this.#rounds(), ...this.#spans(), this.#cursor];
    this.element = h("div", { class: "replay-line", ...props, "aria-valuemax": moments.last + 1, ...listeners }, drawn);
    this.show(moments.last);
  }

  show(position) {
    this.position = position;
    const left = position === this.#moments.last ? 100 : this.#percent(position);
    this.#cursor.style.setProperty("left", `${left}%`);
    this.element.setAttribute("aria-valuenow", position + 1);
    this.element.setAttribute(
      "aria-valuetext",
      `${placeWords(this.#moments, position)}, ${eventWords(this.#moments, position)}`,
    );
  }

  #percent(position) {
    const { seconds, length_s, events } = this.#moments;
    return (100 * (length_s ? seconds[position] / length_s : position / events.length)).toFixed(3);
  }

  #part(kind, from, to) {
    const part = h("span", { class: `replay-${kind}` });
    const [left, right] = [this.#percent(from), this.#percent(to)];
    part.style.setProperty("left", `${left}%`);
    part.style.setProperty("width", `${right - left}%`);
    return part;
  }

  #rounds() {
    const { rounds, events } = this.#moments;
    return rounds.map((from, at) => this.#part("round", from, rounds[at + 1] ?? events.length));
  }

  #spans() {
    const { spans, seconds } = this.#moments;
    const length = ({ from, to }) => seconds[to] - seconds[from];
    const longest = spans.toSorted((one, other) => length(other) - length(one)).slice(0, MOST_SPANS);
    return longest.map(({ kind, from, to }) => this.#part(kind, from, to));
  }

  #press(event) {
    if (event.button) return;
    this.element.setPointerCapture(event.pointerId);
    this.#moveTo(event);
  }

  #moveTo({ clientX }) {
    const { length_s, last } = this.#moments;
    const { left, width } = this.element.getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (clientX - left) / width));
    this.#move(length_s && part < 1 ? this.#moments.positionAt(part * length_s) : Math.round(part * last));
  }

  #key(event) {
    const { rounds, last } = this.#moments;
    const { position } = this;
    const steps = {
      ArrowLeft: position - 1,
      ArrowDown: position - 1,
      ArrowRight: position + 1,
      ArrowUp: position + 1,
      PageDown: rounds.findLast((at) => at < position) ?? 0,
      PageUp: rounds.find((at) => at > position) ?? last,
      Home: 0,
      End: last,
    };
    if (!(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.#move(Math.min(last, Math.max(0, steps[event.key])));
  }

  #move(position) {
    if (position !== this.position) this.onMove(position);
  }
}

/** `Round 3, call bash`. */
export function placeWords(moments, position) {
  const round = moments.roundAt(position);
  const { kind, name } = moments.callAt(position) ?? {};
  const words = [round ? t("replay.round", { round }) : t("replay.start")];
  if (kind) words.push(t(`replay.${kind}`, { name: nameOf(name ?? "") }));
  return words.join(", ");
}

/** `event 141 of 380`, by the numbers that the server knows them by. */
export const eventWords = ({ events, last }, position) =>
  t("replay.event", { at: events[position].seq, of: events[last].seq });
