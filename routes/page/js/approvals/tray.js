/** The tray of waiting calls: the first one of the open conversation in full, its others as a list, and those elsewhere as a line. */

import { request } from "../feed/api.js";
import { summaryOf } from "./call_description.js";
import { ApprovalBox } from "./approval_box.js";
import { deciderOf } from "../cards/call_title.js";
import { announce, button, fill, focusMessageBox, h, icon } from "../dom/elements.js";
import { escapeLine } from "../text/exact_text.js";
import { notifyButton } from "./notifications.js";
import { t } from "../dom/more_texts.js";

const SETTLE_MS = 400; // ignores clicks on buttons that have just moved
const NOTE_MS = 12_000;
const SKEW_MS = 30_000; // from here on the clocks are taken to differ

const keyOf = ({ run, call }) => `${run}/${call}`;
/** True if the call is one of the runs of these sessions, or of a helper below them. */
const isOf = (row, here) => here.includes(row.session) || row.path?.some(({ session }) => here.includes(session));
const briefly = (row) => `${escapeLine(row.name)} · ${summaryOf(row)}`;

const OUTCOMES = new Set(["approved", "denied", "expired", "withdrawn"]);

/** "Approved by ann in the terminal", of an event, or of what the server says to a decision that came too late. */
const outcomeOf = ({ decision, by, door }) =>
  OUTCOMES.has(decision) ? t(`approvals.elsewhere.${decision}`, { by: deciderOf(by, door) }) : decision;

export class Tray {
  skew_ms = 0; // how far the server's clock is ahead
  #page;
  #element;
  #rows = [];
  #boxes = new Map(); // kept while another one is shown, so that input is not lost
  #box = null;
  #chosen = null; // the key of the one selected by the user
  #awaited = null; // the key of one to show as soon as it is listed
  #decided = new Set(); // decided here, although the server's list may still have them
  #notified = new Set(); // the keys of those that a notification has led to
  #known = new Map(); // every row so far, by key
  #tools = null;
  #timer = null;
  #noteTimer = null;

  constructor(page) {
    this.#page = page;
    this.#element = page.at("approvals");
    this.#element.tabIndex = -1;
    this.heading = h("h2", { tabindex: -1 });
    this.note = h("p", { class: "approval-note", role: "status" });
    this.place = h("div", { class: "approval-place" });
    this.list = h("ul", { class: "approval-others" });
    const key = h("kbd", { title: t("approvals.focus") }, t("keys.waiting"));
    this.head = h("header", { class: "approvals-head" }, icon("bell"), this.heading, key, notifyButton());
    fill(this.#element, this.note, this.head, this.place, this.list);
    this.#listen();
    for (const part of ["approvals", "session", "sessions", "compared"]) page.store.watch(part, () => this.#changed());
    page.store.watch("resolved", (event) => this.#resolved(event));
  }

  #listen() {
    const element = this.#element;
    element.addEventListener("click", (event) => this.#ignoreEarlyClick(event), true);
    element.addEventListener("keydown", (event) => this.#key(event));
    element.addEventListener("focus", () => this.focus());
    document.addEventListener("keydown", (event) => {
      if (event.code !== "KeyA" || !event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      if (!this.#rows.length) return;
      event.preventDefault();
      this.focus();
    });
    document.addEventListener("visibilitychange", () => document.hidden || this.settle());
  }

  /** Ignores clicks for a moment: one that was aimed at something else must not decide a call. */
  settle() {
    this.#element.dataset.settling = "";
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => delete this.#element.dataset.settling, SETTLE_MS);
  }

  #ignoreEarlyClick(event) {
    const byPointer = event.detail > 0; // the keyboard focus is here only by intent
    if (!byPointer || !("settling" in this.#element.dataset) || !event.target.closest("button")) return;
    event.preventDefault();
    event.stopPropagation();
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.isComposing) return;
    const inBox = this.#box && event.target.closest(".approval");
    const writing = event.target.closest("input, textarea, select");
    const key = event.key.toLowerCase();
    const early = "settling" in this.#element.dataset;
    if (!inBox || ((writing || early) && key !== "escape")) return;
    if (this.#box.key(key)) event.preventDefault();
    else if (key === "escape") this.#page.at("composer-text")?.focus();
    else return;
    event.stopPropagation();
  }

  /** The open conversation, and those that are compared in it. */
  get #here() {
    const { store } = this.#page;
    return [store.get("session"), ...(store.get("compared") ?? [])];
  }

  focus() {
    (this.#box?.element ?? this.list.querySelector("button") ?? this.heading).focus();
  }

  /** The door by which a decision of a call is one. */
  doorOf = (row) => (this.#notified.has(keyOf(row)) ? "push" : "page");

  /** Shows an approval in full and focuses it; opens its conversation if necessary. `notified`: from a notification. */
  show(row) {
    if (row.notified) this.#notified.add(keyOf(row));
    const wanted = this.#rows.find((one) => keyOf(one) === keyOf(row));
    this.#awaited = wanted ? null : keyOf(row); // a card can know of a call before the list does
    if (!wanted) return;
    this.#chosen = keyOf(wanted);
    if (!isOf(wanted, this.#here)) this.#page.conversation.open(wanted.session);
    this.#draw();
    this.focus();
  }

  #changed() {
    const rows = (this.#page.store.get("approvals") ?? []).filter((row) => !this.#decided.has(keyOf(row)));
    const here = this.#here;
    this.#rows = [...rows.filter((row) => isOf(row, here)), ...rows.filter((row) => !isOf(row, here))];
    this.#announce();
    this.#draw();
    this.#clear();
    const awaited = this.#rows.find((row) => keyOf(row) === this.#awaited);
    if (awaited) this.show(awaited);
  }

  #announce() {
    const fresh = this.#rows.filter((row) => !this.#known.has(keyOf(row)));
    for (const row of fresh) this.#known.set(keyOf(row), row);
    if (!fresh.length) return;
    if (!this.#tools) this.#fetchTools();
    const words = fresh.map((row) => t("approvals.fresh", { name: escapeLine(row.name), summary: summaryOf(row) }));
    announce(words.join(". "), { urgent: true });
  }

  /** Fetches the tools once; the Date header of the response also gives the server's time. */
  async #fetchTools() {
    this.#tools = new Map();
    try {
      const response = await request("GET", "/tools");
      const ahead_ms = Date.parse(response.headers.get("date")) - Date.now();
      if (Math.abs(ahead_ms) > SKEW_MS) this.skew_ms = ahead_ms;
      const { tools } = await response.json();
      for (const tool of tools) this.#tools.set(tool.name, tool);
      for (const box of this.#boxes.values()) box.setTools(this.#tools);
    } catch {
      this.#tools = null; // fetched again with the next call; approvals work without it
    }
  }

  #draw() {
    const here = this.#here;
    const mine = this.#rows.filter((row) => isOf(row, here));
    const whole = mine.find((row) => keyOf(row) === this.#chosen) ?? mine[0] ?? null;
    const [own, elsewhere] = [mine.filter((row) => row !== whole), this.#rows.filter((row) => !mine.includes(row))];
    const before = this.#layout;
    this.head.hidden = !whole;
    if (whole === null || keyOf(whole) !== (this.#box && keyOf(this.#box.row))) this.#showBox(whole);
    const lines = [...own.map((row) => this.#line(row)), this.#elsewhere(elsewhere)].filter(Boolean);
    const words = (elements) => [...elements].map((element) => element.textContent).join("\n");
    if (words(lines) !== words(this.list.children) || before !== this.#layoutWith(lines.map((line) => line.dataset)))
      fill(this.list, lines);
    this.list.hidden = !lines.length;
    this.heading.textContent = t("approvals.waiting", { count: mine.length });
    if (before !== this.#layout) this.settle();
  }

  get #layout() {
    return this.#layoutWith([...this.list.children].map((element) => element.dataset));
  }

  #layoutWith(others) {
    return [this.#box?.row, ...others].map((one) => one?.call).join();
  }

  #showBox(row) {
    const had = this.#box?.element.contains(document.activeElement);
    this.#box = row && this.#boxOf(row);
    fill(this.place, this.#box?.element);
    if (!had) return;
    // Not into the next call: continued typing must not decide something unread.
    if (row) this.heading.focus();
    else focusMessageBox();
  }

  #boxOf(row) {
    const box = this.#boxes.get(keyOf(row)) ?? new ApprovalBox(row, this.#page, this, this.#tools ?? new Map());
    this.#boxes.set(keyOf(row), box);
    return box;
  }

  /** Removes boxes of calls that no longer wait. */
  #clear() {
    const left = new Set(this.#rows.map(keyOf));
    for (const [key, box] of this.#boxes) {
      if (left.has(key)) continue;
      box.close();
      this.#boxes.delete(key);
    }
  }

  #line(row, name = briefly(row), shown = h("code", {}, name)) {
    const line = h("span", { class: "approval-line" }, shown);
    const show = button(t("approvals.show"), () => this.show(row), {
      "aria-label": t("approvals.show.named", { name }),
    });
    return h("li", { dataset: { call: row.call } }, line, show);
  }

  /** Other conversations that wait, in one line, which leads to the first of them. */
  #elsewhere([row, ...more]) {
    if (!row) return null;
    const words = t("approvals.others", { count: new Set([row, ...more].map(({ session }) => session)).size });
    return this.#line(row, words, words);
  }

  /** The call was decided here, or the server reports that it no longer waits. */
  onDecided(box, given, { own }) {
    const words = typeof given === "string" ? given : outcomeOf(given);
    this.#decided.add(keyOf(box.row));
    this.#showNote(own ? null : `${summaryOf(box.row)}: ${words}`);
    announce(words);
    this.#changed();
  }

  /** A call of the open conversation was decided elsewhere. */
  #resolved(event) {
    const key = keyOf(event);
    const row = this.#known.get(key);
    if (!row || this.#decided.has(key)) return;
    this.#decided.add(key);
    this.#showNote(`${outcomeOf(event)}: ${briefly(row)}`);
    this.#changed();
  }

  #showNote(words) {
    this.note.textContent = words ?? "";
    clearTimeout(this.#noteTimer);
    this.#noteTimer = setTimeout(() => (this.note.textContent = ""), NOTE_MS);
  }
}
