/**
 * The outline of a long conversation, in the side panel: the user's messages and the headings of long answers, to jump
 * to. It has all turns; earlier ones are loaded when one of them is opened.
 */

import { button, fill, h, onNextFrame } from "../dom/elements.js";
import { styleAt } from "../dom/library.js";
import { Roving } from "../dom/roving.js";
import { t } from "../dom/more_texts.js";
import { fetchLog } from "../chat/run_log.js";
import { showPlace, showTurn } from "./row_actions.js";

await styleAt("css/later/outline.css").catch(() => undefined);

const MOST = 5_000; // turns
const HEADINGS = ".answer :is(h3, h4, h5)"; // of the first three levels
const FEW = 3; // headings that make an answer a long one
const ROW = { class: "quiet", dir: "auto", tabindex: -1 };
const READ_AT = 0.25; // of the height: what begins above is being read

export function toggle(page, opener) {
  if (page.panel.name === "outline") return page.panel.close();
  const outline = new Outline(page);
  return page.panel.toggle("outline", t("outline.title"), outline.element, opener, { closed: () => outline.end() });
}

class Outline {
  #page;
  #rows = new Map(); // by run, in order: `{item, button, view, headings}`
  #loaded = []; // the rows of what is there
  #current = null; // the button
  #session = null;

  constructor(page) {
    this.#page = page;
    this.element = h("ol", { class: "outline" });
    this.roving = new Roving(this.element, "button");
    const { element } = page.conversation;
    const scrolled = () => onNextFrame(this.#mark);
    element.addEventListener("scroll", scrolled, { passive: true });
    const grown = new ResizeObserver(() => onNextFrame(this.#draw));
    grown.observe(element.querySelector(".runs"));
    const stop = page.store.watch("session", (session) => this.#read(session));
    this.end = () => {
      element.removeEventListener("scroll", scrolled);
      grown.disconnect();
      stop();
    };
  }

  async #read(session) {
    this.#session = session;
    const none = { runs: [] }; // then only what is loaded is listed
    const log = session ? await fetchLog(session, { runs: MOST, events: false }).catch(() => none) : none;
    if (this.#session !== session) return;
    this.#rows.clear();
    fill(this.element);
    for (const asked of log.runs) this.#add(asked);
    this.#draw();
  }

  #add({ run, message }) {
    const props = { ...ROW, class: "quiet faint", title: t("outline.earlier") };
    const row = {
      button: button((message?.shown ?? message?.text)?.slice(0, 200) || "…", () => this.#go(run), props),
      headings: [],
    };
    row.item = h("li", {}, row.button);
    this.#rows.set(run, row);
    this.element.append(row.item);
    return row;
  }

  #draw = () => {
    for (const view of this.#page.conversation.turns) {
      const row = this.#rows.get(view.asked.run) ?? this.#add(view.asked);
      row.button.classList.remove("faint");
      row.button.removeAttribute("title");
      if (row.isWhole && row.view === view) continue;
      row.isWhole = view.ended && row.view === view; // an answer is drawn a little later than it ends
      row.view = view;
      this.#addHeadings(row);
    }
    this.#loaded = [...this.#rows.values()].filter(({ view }) => view);
    this.#mark();
  };

  #addHeadings(row) {
    const found = [...row.view.element.querySelectorAll(HEADINGS)];
    if (found.length < FEW || found.length === row.headings.length) return;
    const goes = (element) => () => showPlace(this.#page, element);
    row.headings = found.map((element) => ({ element, button: button(element.textContent, goes(element), ROW) }));
    const items = row.headings.map((one) => h("li", {}, one.button));
    fill(row.item, row.button, h("ol", {}, items));
  }

  /** Loads the turn if it is not there. */
  async #go(run) {
    const { button } = this.#rows.get(run);
    button.ariaBusy = "true";
    await showTurn(this.#page, null, this.#session, run).finally(() => (button.ariaBusy = null));
  }

  /** Marks the place that is being read: the last one that begins above it, at the end the last one. */
  #mark = () => {
    const box = this.#page.conversation.element;
    const { top, height } = box.getBoundingClientRect();
    const isAbove = ({ element, view }) =>
      !element?.closest("[hidden]") && (element ?? view.element).getBoundingClientRect().top <= top + height * READ_AT;
    const isAtEnd = box.scrollHeight - box.scrollTop - height < 8;
    const last = (places) => (isAtEnd ? places.at(-1) : places.findLast(isAbove));
    // Headings only of this one: browsers lay out what is out of sight when its place is asked for.
    const row = last(this.#loaded) ?? this.#loaded[0];
    const now = (last(row?.headings ?? []) ?? row)?.button;
    if (now === this.#current) return;
    if (this.#current) this.#current.ariaCurrent = null;
    this.#current = now;
    if (!now) return;
    now.ariaCurrent = "location";
    if (this.element.matches(":hover, :focus-within")) return;
    now.scrollIntoView({ block: "nearest" });
    this.roving.update(now);
  };
}
