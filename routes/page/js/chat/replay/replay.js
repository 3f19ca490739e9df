/** Watching a run again: a timeline below the conversation, which shows the run as it was at the event at its cursor. */

import { formatDuration } from "../../dom/clock.js";
import { copyButton } from "../../dom/copy.js";
import {
  announce,
  button,
  dialog,
  dialogButtons,
  fill,
  h,
  icon,
  iconButton,
  restoreFocus,
} from "../../dom/elements.js";
import { select } from "../../dom/forms.js";
import { styleAt } from "../../dom/library.js";
import { t } from "../../dom/more_texts.js";
import { windowOf } from "../../panels/models.js";
import { eventsOf } from "../helper_view.js";
import { costWords } from "../run_notes.js";
import { Moments } from "./moments.js";
import { Player } from "./player.js";
import { eventWords, placeWords, Timeline } from "./timeline.js";

const SPEEDS = [1, 2, 5, 10, 50, 100];
const BLOCKED = ["composer", "approvals"]; // parts of the page that act on the run as it is now

await styleAt("css/later/replay.css").catch(() => undefined);

let opened = null; // one at a time

export class Replay {
  #left = new AbortController();
  #page;
  #opener;
  #player = null;
  #place = null; // where the reader was in the conversation
  #list = null; // the turns, while they are of the past
  #playing = null; // `{at, seconds}`: when playing began or went on, and where
  #frame = 0;

  /** Opens the timeline of a run, or closes it where it is open already. Resolves when it is there. */
  static async open(view, opener = null) {
    const own = opened?.view === view;
    opened?.close({ linked: !opener });
    if (own && opener) return null;
    const replay = (opened = new Replay(view, opener));
    await replay.#load();
    return replay;
  }

  /** Shows the conversation at an event that a link names, or says why it cannot; not once another is followed. */
  static async openLinked(page, { run, seq, isCurrent = () => true }) {
    const view = await page.conversation.turn(run);
    if (!isCurrent()) return undefined;
    if (!view) {
      opened?.close({ linked: true });
      return say(t("replay.unknown_run"));
    }
    const replay = await Replay.open(view);
    if (!replay.moments || !seq || !isCurrent()) return undefined;
    const position = replay.moments.positionOf(Number(seq));
    return position < 0 ? say(t("replay.unknown_event", { event: seq })) : replay.#goTo(position);
  }

  constructor(view, opener) {
    this.view = view;
    this.#page = view.page;
    this.#opener = opener;
    this.words = h("span", {});
    const back = button(t("replay.back"), () => this.toNow());
    this.bar = h("p", { class: "replay-bar", hidden: true }, this.words, back);
    this.body = h("div", {}, h("p", { class: "faint" }, t("loading.short")));
    this.element = h("section", { class: "replay", "aria-label": t("replay.open") }, this.bar, this.body);
    this.#page.at("conversation").after(this.element);
    opener?.setAttribute("aria-expanded", "true");
    const { signal } = this.#left;
    document.addEventListener("keydown", (event) => this.#key(event), { signal });
    addEventListener("popstate", () => location.hash.includes("/") || this.toNow(), { signal });
    const unwatch = this.#page.store.watch("session", () => view.element.isConnected || this.close());
    signal.addEventListener("abort", unwatch);
  }

  get session() {
    return this.#page.readOnly ? null : this.view.asked.session;
  }

  async #load() {
    try {
      const rows = this.view.log ?? (await this.#read());
      if (this.#left.signal.aborted || this.#player) return;
      if (rows.length) this.#build(rows);
      else this.#fail(t("replay.empty"));
    } catch (error) {
      if (!this.#left.signal.aborted && !this.moments) this.#fail(t("run.unreadable", { reason: error.message }));
    }
  }

  #fail(words) {
    this.close();
    say(words);
  }

  /** The events up to now. */
  async #read() {
    const { ended, seq } = this.view;
    const rows = [];
    if (!ended && !seq) return rows;
    for await (const event of eventsOf(this.view.asked.run, this.#left.signal)) {
      rows.push(event);
      if (!ended && event.seq >= seq) break;
    }
    return rows;
  }

  #build(rows) {
    const { created, ended } = this.view.asked;
    const total = (ended ?? Date.now() / 1000) - created;
    this.moments = new Moments(rows, total);
    this.line = new Timeline(this.moments, (position) => this.#pick(position));
    this.play = iconButton(t("replay.play"), "play", () => this.#toggle());
    this.speed ??= select(
      SPEEDS.map((speed) => [speed, t("replay.speed", { speed })]),
      { "aria-label": t("replay.speed.label"), onchange: () => this.#playing && this.#start() },
    );
    this.told = h("span", { class: "replay-told faint", dir: "auto" });
    const link = copyButton(t("replay.link"), () => this.#address());
    const tries = !this.#page.readOnly && button(t("try.open"), () => this.#tryFrom());
    const close = iconButton(t("replay.close"), "cross", () => this.close());
    const focused = !this.tools || this.body.contains(document.activeElement);
    this.tools = h("div", { class: "replay-tools" }, this.play, this.speed, this.told, tries, link, close);
    fill(this.body, this.line.element, this.tools);
    this.view.element.classList.add("watched"); // it is laid out in parts from now on, for it comes and goes as a whole
    this.#show(this.moments.last);
    if (focused) this.line.element.focus({ preventScroll: true });
  }

  #key({ key, target, defaultPrevented }) {
    if (key !== "Escape" || defaultPrevented || target.closest("dialog")) return;
    if (this.#player) this.toNow();
    else if (this.element.contains(target)) this.close();
  }

  #pick(position) {
    this.#pause();
    this.#goTo(position);
  }

  /** The last event is now. */
  async #goTo(position) {
    if (position === this.moments.last) return this.toNow();
    this.#begin();
    this.#show(position);
    await this.#player.show(position);
    if (this.#player) this.#page.conversation.follower.settle();
  }

  #show(position) {
    const { moments } = this;
    this.line.show(position);
    const times = { at: formatDuration(moments.secondsAt(position)), of: formatDuration(moments.length_s) };
    const time = t("replay.time", times);
    const words = [time, placeWords(moments, position), ...this.#facts(moments.usageAt(position))];
    this.told.textContent = words.filter(Boolean).join(" · ");
    this.words.textContent = t("replay.bar", { event: eventWords(moments, position) });
  }

  #facts({ rate, prompt_tokens: used, total_cost: cost }) {
    const room = windowOf(this.#page, this.view.started?.model);
    const context = room ? t("replay.context.of", { used, room }) : t("replay.context", { used });
    return [rate && t("run.rate", { rate }), used && context, cost && costWords(cost)];
  }

  /** From now into the past: the run and what follows it give way to how it was, and nothing can be sent. */
  #begin() {
    if (this.#player) return;
    const { follower } = this.#page.conversation;
    this.#place = follower.place;
    this.#player = new Player(this.view, this.moments);
    this.view.element.before(this.#player.element);
    this.#list = this.view.element.parentElement;
    this.#list.classList.add("of-the-past");
    follower.toEnd();
    this.#block(true);
  }

  #block(blocks) {
    this.bar.hidden = !blocks;
    for (const name of BLOCKED) {
      const part = this.#page.at(name);
      if (part) part.inert = blocks;
    }
  }

  /** Leaves the past. `linked`: the address stays, it is that of another link. */
  toNow({ linked = false } = {}) {
    this.#pause();
    if (!this.#player) return this.#show(this.moments.last);
    const { follower } = this.#page.conversation;
    const focused = this.bar.contains(document.activeElement);
    this.#player.leave();
    this.#player = null;
    this.#list.classList.remove("of-the-past");
    follower.holdPosition(async () => undefined, this.#place);
    this.#block(false);
    this.#show(this.moments.last);
    if (location.hash.startsWith(`#${this.#name}/`) && !linked)
      history.replaceState(null, "", this.session ? `#${this.session}` : location.pathname);
    if (focused) this.line.element.focus({ preventScroll: true });
    announce(t("replay.now"));
    if (this.view.seq > this.moments.events.at(-1).seq) this.#load(); // the run has gone on
  }

  #toggle() {
    if (this.#playing) return this.#pause();
    if (this.line.position === this.moments.last) this.#goTo(0);
    this.#start();
  }

  #start() {
    cancelAnimationFrame(this.#frame);
    this.#playing = { at: performance.now(), seconds: this.moments.seconds[this.line.position] };
    this.#showPlaying("pause");
    this.#frame = requestAnimationFrame(() => this.#tick());
  }

  #pause() {
    cancelAnimationFrame(this.#frame);
    if (this.#playing) this.#showPlaying("play");
    this.#playing = null;
  }

  #showPlaying(action) {
    const name = t(`replay.${action}`);
    fill(this.play, icon(action));
    this.play.setAttribute("aria-label", name);
    this.play.title = name;
  }

  async #tick() {
    const playing = this.#playing;
    const seconds = playing.seconds + ((performance.now() - playing.at) / 1000) * Number(this.speed.value);
    const position = Math.max(this.line.position, this.moments.positionAt(seconds));
    if (position !== this.line.position || position === this.moments.last) await this.#goTo(position);
    if (this.#playing === playing) this.#frame = requestAnimationFrame(() => this.#tick());
  }

  /** Of the run, in an address. */
  get #name() {
    return [this.session, this.view.asked.run].filter(Boolean).join("/");
  }

  #address() {
    const { seq } = this.moments.events[this.line.position];
    return `${location.origin}${location.pathname}#${this.#name}/${seq}`;
  }

  /** What can be changed at the cursor: the open call, the result of one that has just ended, or the first message. */
  #tryFrom() {
    const { position } = this.line;
    const { seq, type, text } = this.moments.events[position];
    const open = this.moments.callAt(position);
    const from = { at: seq };
    if (open) Object.assign(from, { call: open.call, edit: { arguments: this.moments.events[open.from].arguments } });
    else if (type === "tool.finished") from.edit = { result: text };
    else if (this.view.asked.message && position <= (this.moments.rounds[0] ?? 0))
      from.edit = { message: this.view.asked.message.text };
    this.view.tryFrom(from);
  }

  close({ linked = false } = {}) {
    if (this.#left.signal.aborted) return;
    const focused = this.element.contains(document.activeElement);
    if (this.#player) this.toNow({ linked });
    this.#pause();
    this.#left.abort();
    this.element.remove();
    opened = opened === this ? null : opened;
    this.#opener?.setAttribute("aria-expanded", "false");
    if (focused) restoreFocus(this.#opener);
  }
}

const say = (words) =>
  dialog(t("replay.open"), (close) => [
    h("p", { dir: "auto" }, words),
    dialogButtons(button(t("dialog.close"), () => close(), { autofocus: true })),
  ]);
