/**
 * Previews of HTML, SVG and Mermaid in a frame. The document is handed to a page of ours that has neither origin nor
 * network (frame/artefact.html); all that comes back is its height, the first mistake, and that something is missing.
 */

import { saveText } from "../dom/download.js";
import { button, h, icon } from "../dom/elements.js";
import { librarySource } from "../dom/library.js";
import { t } from "../dom/more_texts.js";
import { pageOf } from "./code_buttons.js";
import { escapeLine } from "./exact_text.js";
import { guardFocus } from "./focus_guard.js";
import { MessageRate } from "./message_rate.js";
import { heedsAllowlist } from "./offline_proof.js";

export const FRAME = new URL("../../frame/artefact.html", import.meta.url).href;
const LONGEST = 2_000_000; // characters
const HEIGHTS = [80, 640];
const MOST_GIVEN = 5; // times that a frame gets its document: it may load itself anew
const ENDINGS = { html: "html", svg: "svg", mermaid: "mmd" };
const CENTRED = "margin:0;padding:12px;box-sizing:border-box;";
const ROOM = matchMedia("(min-width: 1100px)"); // for the conversation and the preview
const open = new WeakMap(); // by the figure of the code
let count = 0; // of side panels

/** Shows the preview, at the side if there is room, or in place of the code; or ends it. */
export function togglePreview({ figure, toggle, kind, text }) {
  if (open.has(figure)) open.get(figure).end();
  else open.set(figure, new Artefact(figure, toggle, kind, text()));
}

class Artefact {
  #frame = null;
  #ends = new AbortController();
  #guard = new AbortController(); // of the frame
  #received = new MessageRate();
  #given = 0;
  #fits = { width: 0, height: 0 };
  #panel = null; // the side panel that it is in

  constructor(figure, toggle, kind, source) {
    Object.assign(this, { figure, toggle, kind, source });
    this.place = h("div", { class: "artefact-frame", dataset: { kind } });
    this.note = h("p", { class: "artefact-note faint", role: "status" });
    const tool = (name, onclick, ...parts) => button([...parts, t(`artefact.${name}`)], onclick, { class: "quiet" });
    const tools = [
      tool("reload", () => this.load()),
      tool("full", () => this.#enlarge()),
      tool("download", () => saveText(source, kind, ENDINGS[kind]), icon("save")),
    ];
    this.element = h("div", { class: "artefact" }, this.place, this.note, h("div", { class: "artefact-tools" }, tools));
    const page = ROOM.matches ? pageOf(figure) : null;
    if (page) this.#openAside(page);
    else figure.append(this.element);
    figure.classList.toggle("previewed", !page);
    if (!page) toggle.textContent = t("artefact.code");
    const { signal } = this.#ends;
    const isOurs = (source) => source && source === this.#frame?.contentWindow;
    addEventListener("message", (event) => isOurs(event.source) && this.#hear(event.data), { signal });
    this.load();
  }

  end() {
    this.#ends.abort();
    this.#guard.abort();
    open.delete(this.figure);
    this.element.remove();
    this.figure.classList.remove("previewed");
    this.toggle.textContent = t("artefact.preview");
    this.#panel?.close();
  }

  /** Until the panel closes, or another conversation is opened. */
  #openAside({ panel, store }) {
    let session = store.get("session");
    const stop = store.watch("session", (now) => {
      if (session && session !== now) this.end();
      session = now;
    });
    const closed = () => {
      stop();
      this.#panel = null;
      if (open.has(this.figure)) this.end();
    };
    const name = `artefact:${(count += 1)}`;
    panel.toggle(name, t("artefact.frame"), this.element, this.toggle, { closed, isWide: true });
    this.#panel = panel;
  }

  /** From the beginning, in a frame of its own: nothing of the last one is left. */
  load() {
    this.note.textContent = "";
    if (this.source.length > LONGEST) return this.#say("too_long");
    const frame = h("iframe", { src: FRAME, sandbox: "allow-scripts", title: t("artefact.frame"), loading: "eager" });
    if (this.#frame?.isConnected) this.#frame.replaceWith(frame);
    else this.place.append(frame);
    this.#frame = frame;
    this.#given = 0;
    this.#fits = { width: 0, height: 0 };
    this.#guard.abort();
    this.#guard = new AbortController();
    guardFocus(frame, this.#guard.signal, () => this.#stop("greedy"));
    return undefined;
  }

  /** Ends a frame that does harm; it can be loaded again. */
  #stop(why) {
    this.#guard.abort();
    this.#frame.remove();
    this.#frame = null;
    this.#say(why);
  }

  #say(name, values) {
    this.note.textContent = t(`artefact.${name}`, values);
  }

  /** What the frame says may be anything: it can say that something is wrong with it, and how high it is. */
  async #hear(data) {
    if (this.#received.isOver()) return this.#stop("loud");
    const { ready, height, error, mistaken, ...missing } = Object(data?.artefact);
    if (ready) return this.#handOver();
    if (typeof height === "number" && this.kind !== "html") this.#fit(height);
    else if (typeof error === "string")
      this.#say(mistaken ? "mistaken" : "failed", { reason: escapeLine(error.slice(0, 300).replace(/\s+/g, " ")) });
    else if (!this.note.textContent) {
      const name = ["still", "inner", "blocked"].find((one) => missing[one]);
      if (name) this.#say(name);
    }
    return undefined;
  }

  /** At one width it only grows: what stands below is not moved to and fro. */
  #fit(height) {
    const [least, most] = HEIGHTS;
    const width = this.place.clientWidth;
    if (width === this.#fits.width && !(height > this.#fits.height)) return;
    this.#fits = { width, height };
    this.place.style.height = `${Math.min(most, Math.max(least, height + 24))}px`;
  }

  async #handOver() {
    const frame = this.#frame;
    if ((this.#given += 1) > MOST_GIVEN) return;
    try {
      const [given, heeds] = await Promise.all([DOCUMENTS[this.kind](this.source), heedsAllowlist()]);
      frame.contentWindow?.postMessage({ ...given, heeds, at: FRAME }, "*"); // it has no origin that could be named
    } catch {
      this.#say("not_loaded");
    }
  }

  #enlarge() {
    if (this.#frame) enlarge(() => this.#frame, this.place, t("artefact.frame"));
  }
}

/** The frame over the whole page, with `more` above it. Where a browser cannot move a frame, it begins again. */
export function enlarge(frame, place, label, more = null) {
  const close = button(t("artefact.close"), () => box.close());
  const tools = h("div", { class: "artefact-tools" }, h("p", { class: "faint" }, label), close);
  const box = h("dialog", { class: "artefact-full", "aria-label": label }, tools, more);
  document.body.append(box);
  box.addEventListener("close", () => {
    if (frame()) move(frame(), place);
    box.remove();
  });
  move(frame(), box);
  box.showModal();
  return box;
}

export function move(frame, place) {
  if (place.moveBefore && frame.isConnected && place.isConnected) place.moveBefore(frame, null);
  else place.append(frame);
}

const DOCUMENTS = {
  html: (source) => ({ html: /^\s*<!doctype/i.test(source) ? source : `<!doctype html>${source}` }),
  svg: (source) => ({
    html: `<!doctype html><style>svg{max-width:100%;height:auto}</style><body style="${CENTRED}"><div data-fits style="text-align:center">`,
    svg: source,
  }),
  async mermaid(diagram) {
    const library = await librarySource("mermaid/mermaid.min.js");
    const dark = isDark();
    const back = dark ? "background:#1a1c1f;color-scheme:dark;" : "background:#fff;";
    const html = `<!doctype html><body style="${CENTRED}${back}"><div data-fits style="display:grid;justify-items:center">`;
    return { html, library, diagram, theme: dark ? "dark" : "default" };
  },
};

function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}
