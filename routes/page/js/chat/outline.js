/**
 * The outline of a long conversation, in the side panel: the user's messages and the headings of long answers, to jump
 * to. It has all turns, as the server lists them; earlier ones are loaded when one of them is opened.
 */

import { get } from "../feed/api.js";
import { announce, button, fill, h, onNextFrame } from "../dom/elements.js";
import { styleAt } from "../dom/library.js";
import { Roving } from "../dom/roving.js";
import { forEachInSlices } from "../dom/scheduling.js";
import { t } from "../dom/more_texts.js";
import { showPlace, showTurn } from "../sessions/row_actions.js";

await styleAt("css/later/outline.css").catch(() => undefined);

const HEADINGS = ".answer :is(h3, h4, h5)"; // of the first three levels
const ROW = { class: "quiet", dir: "auto", tabindex: -1 };
const FEW = 3; // headings that make an answer a long one
const GROWN_MS = 200;
const READ_AT = 0.25; // of the height: the turn that is there is being read

export function toggle(page, opener) {
  if (page.panel.name === "outline") return page.panel.close();
  const outline = new Outline(page);
  const closed = () => outline.end();
  return page.panel.toggle("outline", t("outline"), outline.element, opener, { closed });
}

class Outline {
  #page;
  #rows = new Map(); // `{button, item, view}` by run, in order
  #places = []; // `{element, button}` of what is loaded, in order
  #current = null;
  #jumped = null; // the element
  #reading = 0;

  constructor(page) {
    this.#page = page;
    this.element = h("ol", { class: "outline" });
    this.roving = new Roving(this.element, "button");
    const { store, conversation } = page;
    const scrolled = () => onNextFrame(this.#mark);
    conversation.element.addEventListener("scroll", scrolled, { passive: true });
    const stop = store.watch("session", () => this.#read());
    let timer = null;
    const draw = () => {
      timer = null;
      this.#draw();
    };
    const grown = new ResizeObserver(() => (timer ??= setTimeout(draw, GROWN_MS)));
    grown.observe(conversation.element.querySelector(".runs"));
    this.end = () => {
      this.#reading += 1;
      conversation.element.removeEventListener("scroll", scrolled);
      grown.disconnect();
      clearTimeout(timer);
      stop();
    };
  }

  async #read() {
    const reading = ++this.#reading;
    const session = this.#page.store.get("session");
    this.#clear();
    if (!session) return;
    this.#draw(); // what is loaded
    const { turns } = await get(`/sessions/${encodeURIComponent(session)}/outline`).catch(() => ({ turns: [] }));
    const wanted = () => reading === this.#reading;
    if (!turns.length || !wanted()) return;
    this.#clear();
    if (await forEachInSlices(turns, ({ run, text }) => this.#add(run, text), wanted)) this.#draw();
  }

  #clear() {
    this.#rows.clear();
    this.#current = null;
    this.element.replaceChildren();
  }

  #add(run, text) {
    const words = text || t("outline.without_text");
    const goes = () => this.#go(run);
    const row = { button: button(words, goes, { ...ROW, class: "quiet faint", title: t("outline.earlier") }), headings: [] };
    row.item = h("li", {}, row.button);
    this.#rows.set(run, row);
    this.element.append(row.item);
    return row;
  }

  #draw() {
    const views = this.#page.conversation.turns;
    for (const view of views) {
      const row = this.#rows.get(view.asked.run) ?? this.#add(view.asked.run, view.asked.message?.text?.slice(0, 200));
      if (row.view !== view) {
        row.button.classList.remove("faint");
        row.button.removeAttribute("title");
      }
      row.view = view;
      if (!row.settled) this.#addHeadings(row);
    }
    this.#places = [...this.#rows.values()].flatMap(({ view, button, headings }) =>
      view?.element.isConnected ? [{ element: view.element, button }, ...(headings ?? [])] : [],
    );
    this.#mark();
  }

  /** An answer is drawn for some frames more after its run has ended. */
  #addHeadings(row) {
    const found = [...row.view.element.querySelectorAll(HEADINGS)];
    const isSame = found.length === row.count;
    row.settled = isSame && Boolean(row.view.ended);
    if (isSame) return;
    row.count = found.length;
    const place = (element) => {
      const goes = () => {
        this.#uncover();
        this.#jumped = element;
        showPlace(this.#page, element);
      };
      return { element, button: button(element.textContent, goes, ROW) };
    };
    row.headings = found.length < FEW ? [] : found.map(place);
    const list = row.headings.map((one) => h("li", {}, one.button));
    fill(row.item, row.button, list.length ? h("ol", {}, list) : null);
  }

  /** Loads the turn if it is not there. */
  async #go(run) {
    const { store, conversation } = this.#page;
    const { button } = this.#rows.get(run);
    button.ariaBusy = "true";
    if (!conversation.run(run)) announce(t("outline.loading"));
    this.#uncover();
    await showTurn(this.#page, null, store.get("session"), run).finally(() => (button.ariaBusy = null));
    this.#jumped = conversation.run(run)?.element;
    this.#mark();
  }

  /** On a narrow page the panel lies over the conversation. */
  #uncover() {
    if (this.#page.conversation.element.closest("[inert]")) this.#page.panel.close();
  }

  /** Marks the place that is being read: the last one that begins above it; at the end, the one that was opened. */
  #mark = () => {
    const { element: box } = this.#page.conversation;
    const { top, height } = box.getBoundingClientRect();
    let [low, high] = [0, this.#places.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#places[middle].element.getBoundingClientRect().top <= top + height * READ_AT) low = middle + 1;
      else high = middle;
    }
    const opened = this.#places.find(({ element }) => element === this.#jumped);
    const isSeen = opened && opened.element.getBoundingClientRect().top >= top - 1;
    const last = isSeen ? opened : this.#places.at(-1);
    const isAtEnd = box.scrollHeight - box.scrollTop - height < 8;
    const at = isAtEnd ? last : this.#places[Math.max(0, low - 1)];
    if (at?.button !== this.#current) {
      if (this.#current) this.#current.ariaCurrent = null;
      this.#current = at?.button;
      if (at) at.button.ariaCurrent = "location";
      if (at && !this.element.matches(":hover, :focus-within")) {
        at.button.scrollIntoView({ block: "nearest" });
        this.roving.update(at.button);
      }
    }
  };
}
