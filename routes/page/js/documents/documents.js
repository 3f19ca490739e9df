/** The documents of the open conversation: their events, the button that opens each, and the panel beside the chat. */

import { button, h, icon } from "../dom/elements.js";
import { escapeLine } from "../text/exact_text.js";
import { DocumentPane } from "./document_pane.js";
import { t } from "../dom/texts.js";

const OVER = matchMedia("(max-width: 60rem)"); // the panel would lie over the chat: there it is opened by hand
const NAME = "document:"; // of the panel, with the id
const WORDS = {
  "document.finished": ({ version }) => t("document.version", { version: String(version) }),
  "document.changed": ({ version }) => t("document.version", { version: String(version) }),
  "document.suggested": ({ suggestion }) => t("document.suggestion", { number: String(suggestion) }),
};

export class Documents {
  #panes = new Map();

  constructor(page) {
    this.page = page;
    page.store.watch("session", () => this.#leave());
  }

  /** An event of a run. `restoring`: it is of the past, and what it says is read when it is opened. */
  add(event, restoring) {
    const { type, document } = event;
    if (restoring) return;
    if (type === "document.started") {
      this.#pane(document).begin(event);
      if (!OVER.matches && this.#mayOpen()) this.#open(document, { quietly: true });
      return;
    }
    const pane = this.#panes.get(document);
    if (type === "document.delta") pane?.write(event.text);
    else if (type === "document.finished") pane?.finish(event);
    else pane?.load();
  }

  /** A piece of a long code block, which stands in the answer, too. `title` comes with the end of one that is kept. */
  block(event, restoring) {
    const { document, text, language, done, title } = event;
    if (!restoring) {
      if (!this.#panes.has(document)) this.add({ type: "document.started", document, title: language, kind: language });
      this.add({ type: "document.delta", document, text });
      if (done) this.add({ type: "document.finished", document, ok: Boolean(title) });
    }
    return title ? this.button({ type: "document.finished", document, title, version: 1 }) : null;
  }

  /** The run has ended: what it had not finished is discarded. */
  endRun() {
    for (const pane of this.#panes.values()) if (pane.isWriting) pane.finish({ ok: false });
  }

  /** A button for the conversation: it opens the document. */
  button({ type, document, title, ...event }) {
    const facts = h("span", { class: "faint" }, ` ${WORDS[type](event)}`);
    const words = h("span", {}, h("bdi", {}, escapeLine(title)), facts);
    const opener = button([icon("file"), words], () => this.open(document, opener), { class: "document-open" });
    return opener;
  }

  /** A person has changed a document of this session, here or in another tab. */
  reload() {
    for (const pane of this.#panes.values()) if (pane.now && !pane.isWriting) pane.load();
  }

  open(named, opener) {
    const id = this.page.store.get("copies")?.[named] ?? named; // a branch has copies
    const pane = this.#pane(id);
    if (!pane.now && !pane.isWriting) pane.load();
    this.#open(id, { opener });
  }

  #open(id, { opener = null, quietly = false }) {
    const pane = this.#pane(id);
    if (this.page.panel.name === NAME + id && quietly) return;
    this.page.panel.toggle(NAME + id, escapeLine(pane.title), pane.element, opener, { quietly, isWide: true });
  }

  /** Whether no other panel, and no text that a person edits, would be covered. */
  #mayOpen() {
    const { name } = this.page.panel;
    if (name === null) return true;
    return name.startsWith(NAME) && !this.#panes.get(name.slice(NAME.length))?.isEditing;
  }

  #pane(id) {
    let pane = this.#panes.get(id);
    if (!pane) {
      pane = new DocumentPane(id, ({ title }) => {
        if (this.page.panel.name === NAME + id) this.page.panel.rename(escapeLine(title));
      });
      this.#panes.set(id, pane);
    }
    return pane;
  }

  /** Another conversation is open, unless this one has just got its id. */
  #leave() {
    const session = this.page.store.get("session");
    const isOther = this.session && this.session !== session;
    this.session = session;
    if (!isOther) return;
    if (this.page.panel.name?.startsWith(NAME)) this.page.panel.close();
    this.#panes.clear();
  }
}
