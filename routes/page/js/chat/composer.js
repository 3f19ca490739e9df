/** The message box: starts a run, or adds a message to the active one. */

import { Attachments, dropZone } from "./attachments.js";
import { button, focusMessageBox, h, icon, iconButton } from "../dom/elements.js";
import { loadOnce, Problem } from "../dom/forms.js";
import { t } from "../dom/texts.js";
import { writeStored, readStored } from "../dom/storage.js";
import { changedValues } from "../panels/conversation/options.js";
import { Sender } from "./sender.js";

const MAX_HEIGHT = 0.4; // of the text, as a share of the page's height
const COMMAND = /^\/[a-z][^\s/]*(\s|$)/i;
const LONG_PASTE = 4_000; // characters: a longer text becomes an attachment
const MODES = [
  ["", "default"],
  ["sandboxed", "sandboxed"],
  ["ask", "ask"],
  ["auto", "auto", "admin"],
].map(([value, key, needs]) => [value, ...named(`composer.approvals.${key}`), needs]);
const WHEN = ["steer", "queue"].map((value) => [value, ...named(`composer.when.${value}`)]);

export function start(page) {
  page.composer = new Composer(page);
}

class Composer {
  #page;
  #sender;
  #draftSession = null;
  #pastedInto = null; // the draft whose pasted texts are attached
  #completion = null; // of `/` commands, once one was begun
  #completes = false; // whether their list opens when it is loaded
  #stopping = false;
  #paused = false;

  constructor(page) {
    this.#page = page;
    this.#sender = new Sender(page);
    this.form = page.at("composer");
    this.attachments = new Attachments(() => this.#attachmentsChanged());
    this.#build();
    this.#listen();
    this.#loadDraft();
    this.#show();
    focusMessageBox();
  }

  /** Fills the box without sending. */
  fill(words) {
    this.text.value = words;
    this.#textChanged();
    this.text.focus();
  }

  /** Adds a text below what is in the box. */
  insert(words) {
    this.fill([this.text.value.trimEnd(), words].filter(Boolean).join("\n\n"));
  }

  /** What is chosen for the next run, as fields of POST /chat. */
  get fields() {
    const { steer, ...fields } = this.#options();
    return Object.fromEntries(Object.entries(fields).filter(([, value]) => value));
  }

  /** Sends a text that is not in the box; `more`: fields of POST /chat. */
  send(words, more = {}) {
    return this.attempt(() => this.#sender.send(words, [], this.#options({ steer: false, ...more })));
  }

  /** Sends the message of an earlier turn again (`asked` of its view); `more`: fields of POST /chat. */
  resend(asked, more = {}) {
    return this.attempt(() => this.#sender.resend(asked, { ...this.#options({ steer: false }), ...more }));
  }

  /** Runs work whose error is shown above the box. Returns whether it has failed. */
  async attempt(doing) {
    this.problem.show("");
    try {
      await doing();
      return false;
    } catch (error) {
      this.problem.show(error.message);
      return true;
    }
  }

  stop() {
    return this.#page.store.get("working") ? this.#stop() : undefined;
  }

  #build() {
    const keys = {
      id: "composer-text",
      rows: 1,
      "aria-label": t("composer.message"),
      enterkeyhint: "send",
      dir: "auto",
    };
    this.text = h("textarea", { ...keys, placeholder: t("composer.placeholder") });
    this.pick = h("input", { type: "file", multiple: true, hidden: true, "aria-label": t("attachments.files") });
    this.when = choice(t("composer.when"), WHEN, (value) => writeStored("when", value), readStored("when"));
    this.mode = choice(t("composer.approvals"), MODES, (value) => this.#modeChanged(value), readStored("approval"));
    this.#group();
    this.mode.setAttribute("aria-describedby", "composer-mode");
    this.meaning = h("p", { id: "composer-mode", class: "composer-mode faint", role: "status" });
    this.#explainMode();
    this.plan = h("input", { type: "checkbox", "aria-label": t("composer.plan") });
    const planWords = [h("span", {}, t("composer.plan")), h("span", { class: "brief" }, t("composer.plan.brief"))];
    const plan = h("label", { class: "composer-plan", title: t("composer.plan.hint") }, this.plan, planWords);
    this.problem = new Problem();
    const attach = iconButton(t("composer.attach"), "clip", () => this.pick.click());
    const halts = { class: "stop", "aria-label": t("composer.stop"), title: t("composer.stop.hint") };
    // The second click of a double click on "Send" lands on this button and must not stop the run.
    const halt = ({ detail }) => detail < 2 && this.#stop();
    this.halt = button([icon("stop"), h("span", {}, t("composer.stop"))], halt, halts);
    const sends = { class: "primary send", "aria-label": t("composer.send"), title: t("composer.send.hint") };
    this.go = h("button", sends, icon("send"));
    const load = () => import("./branching.js");
    const compare = loadOnce(load, ({ compareDraft }) => compareDraft(this.#page));
    const props = { class: "quiet compare-draft" };
    this.compare = iconButton(t("branch.compare.title"), "columns", compare, props);
    const { mode, when, go } = this;
    const gap = h("span", { class: "composer-gap" });
    const parts = [attach, mode, plan, this.#settings(), when, gap, this.compare, this.halt, go];
    const tools = h("div", { class: "composer-tools" }, parts);
    const box = h("div", { class: "composer-box" }, this.attachments.element, this.text, tools);
    this.form.append(this.problem.element, box, this.meaning, this.pick);
  }

  #listen() {
    const { store } = this.#page;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    this.text.addEventListener("input", () => this.#textChanged());
    this.text.addEventListener("keydown", (event) => this.#key(event));
    this.text.addEventListener("paste", (event) => this.#paste(event));
    this.pick.addEventListener("change", () =>
      this.attachments.add([...this.pick.files]).then(() => (this.pick.value = "")),
    );
    dropZone((files) => this.attachments.add(files));
    addEventListener("resize", () => this.#grow());
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault(); // the address holds the conversation and must not change
      this.text.focus();
    });
    store.watch("working", () => this.#show());
    store.watch("me", (me) => this.#offer(me));
    store.watch("session", () => this.#loadDraft());
    store.watch("paused", (paused) => this.#pausedChanged(paused));
    store.watch("defaults", ({ plan }) => (this.plan.checked ||= plan && !store.get("session")));
    store.watch("planAccepted", () => (this.plan.checked = false));
  }

  /** Takes back the reason of a refusal at the end of a pause: it may be there before the feed reports the beginning. */
  #pausedChanged(paused) {
    if (this.#paused && !paused) this.problem.show("");
    this.#paused = paused;
  }

  /** The button of the conversation's settings; it says how many values are set. */
  #settings() {
    const words = h("span", {});
    const load = () => import("../panels/conversation/settings.js");
    const open = loadOnce(load, ({ toggle }) => toggle(this.#page, opener));
    const opener = button([icon("sliders"), words], open, { class: "quiet conversation-settings" });
    this.#page.store.watch("options", (options) => {
      const count = changedValues(options);
      words.textContent = count || "";
      opener.title = count ? t("composer.options.count", { count }) : t("composer.options");
      opener.setAttribute("aria-label", opener.title);
      opener.classList.toggle("changed", count > 0);
    });
    return opener;
  }

  /** The default has the name of its mode, too: the groups tell them apart, and the box shows a short word. */
  #group() {
    const { value } = this.mode;
    const [usual, ...others] = this.mode.options;
    const group = (key, options) => h("optgroup", { label: t(`composer.approvals.${key}`) }, options);
    this.mode.replaceChildren(group("default", usual), group("instead", others));
    this.mode.value = value;
  }

  /** Hides modes that the role does not allow. */
  #offer({ role, approval }) {
    const usual = MODES.find(([value]) => value === approval)?.[1];
    for (const [value, , , needs] of MODES) {
      const option = [...this.mode.options].find((one) => one.value === value);
      if (!value && usual) option.textContent = usual;
      option.hidden = option.disabled = Boolean(needs) && role !== needs;
      if (option.hidden && option.selected) this.mode.value = "";
    }
    this.#explainMode();
  }

  #modeChanged(mode) {
    writeStored("approval", mode);
    this.#explainMode();
  }

  /** Explains the one mode that is risky to choose by its name alone. */
  #explainMode() {
    this.meaning.textContent = this.mode.value === "auto" ? t("composer.approvals.auto.warning") : "";
    this.meaning.hidden = !this.meaning.textContent;
  }

  #options(more = {}) {
    return {
      steer: this.when.value === "steer",
      approval: this.mode.value,
      mode: this.plan.checked ? "plan" : "",
      ...more,
    };
  }

  /** Sends what is in the box; `more`: fields of POST /chat. */
  async submit(more = {}) {
    const text = this.text.value.trim();
    if ((!text && this.attachments.empty) || this.attachments.busy) return;
    if (COMMAND.test(text) && (await this.#commands().then((list) => list?.run(text)))) return;
    const whole = this.text.value,
      files = this.attachments.take();
    this.text.value = "";
    this.#textChanged();
    const failed = await this.attempt(() => this.#sender.send(text, files, this.#options(more)));
    if (!failed) return this.attachments.forget(files);
    this.text.value = this.text.value ? `${whole}\n${this.text.value}` : whole; // meanwhile typed
    this.attachments.restore(files);
    this.#textChanged();
    this.text.focus();
  }

  async #stop() {
    if (this.#stopping) return;
    this.#stopping = true;
    this.#show();
    await this.attempt(() => this.#sender.stop());
    this.#stopping = false;
    this.#show();
    focusMessageBox();
  }

  #key(event) {
    if (event.isComposing || event.keyCode === 229) return; // an input method is composing
    if (this.#completion?.key(event)) return;
    const { key, shiftKey, altKey, ctrlKey, metaKey } = event;
    if (key === "Escape" && this.#completes && !this.#completion && this.text.value.startsWith("/")) {
      event.preventDefault(); // closes the list that is on its way, and stops no run
      this.#completes = false;
    } else if (key === "Enter" && !shiftKey && !altKey) {
      event.preventDefault();
      this.form.requestSubmit();
    } else if (key === "ArrowUp" && !this.text.value && !(shiftKey || altKey || ctrlKey || metaKey)) {
      this.#recall(event);
    } else if (key === "Escape" && !event.repeat && this.#page.store.get("working")) {
      event.preventDefault();
      this.#stop();
    }
  }

  #recall(event) {
    const last = this.#page.conversation.latest?.asked.message?.text;
    if (!last) return;
    event.preventDefault();
    this.fill(last);
    this.text.setSelectionRange(last.length, last.length);
  }

  #paste(event) {
    const files = [...event.clipboardData.files];
    const text = event.clipboardData.getData("text/plain");
    if (text.length > LONG_PASTE) {
      event.preventDefault();
      return void this.#addPasted(text);
    }
    if (!files.length || text) return; // text, with a picture of it
    event.preventDefault();
    this.attachments.add(files);
  }

  #addPasted(text) {
    const draft = this.#draft;
    const isWanted = () => this.#draft === draft;
    return this.attachments.addPasted(text, { isWanted, intoMessage: (words) => this.insert(words) });
  }

  get #draft() {
    return `draft.${this.#draftSession ?? "new"}`;
  }

  #attachmentsChanged() {
    const { pasted } = this.attachments;
    if (!this.attachments.busy) writeStored(`${this.#draft}.pasted`, pasted.length ? pasted : null);
    this.#show();
  }

  #textChanged() {
    writeStored(this.#draft, this.text.value);
    this.#grow();
    this.#show();
    if (this.#completion || this.text.value.startsWith("/")) this.#complete();
  }

  async #complete() {
    this.#completes = true;
    const list = await this.#commands();
    if (list && this.#completes) list.update();
    else this.#completes = false;
  }

  /** What completes commands, loaded with the first `/`; null where it cannot be loaded: then they are messages. */
  async #commands() {
    try {
      const { Completion } = await this.#page.commands();
      this.#completion ??= new Completion(this.#page);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
    }
    return this.#completion;
  }

  #grow() {
    this.text.style.setProperty("height", "auto");
    this.text.style.setProperty("overflow-y", "hidden");
    if (!this.text.value) return; // one row: to measure it would lay out the page
    const most = MAX_HEIGHT * innerHeight;
    this.text.style.setProperty("height", `${Math.min(this.text.scrollHeight, most)}px`);
    if (this.text.scrollHeight > most) this.text.style.setProperty("overflow-y", "auto");
  }

  /** Loads the draft of the conversation; a draft started before it had an id is kept. */
  #loadDraft() {
    const session = this.#page.store.get("session") ?? null;
    const goesOn = this.#draftSession === null && session && this.#page.conversation.latest;
    if (goesOn) for (const part of ["", ".pasted"]) writeStored(`draft.new${part}`, null);
    this.#draftSession = session;
    if (goesOn) {
      this.#pastedInto = this.#draft;
      this.#attachmentsChanged();
    } else this.#readDraft();
    this.#textChanged();
  }

  #readDraft() {
    this.text.value = readStored(this.#draft) ?? "";
    if (this.#pastedInto === this.#draft) return; // the same draft, loaded again
    this.#pastedInto = this.#draft;
    const pasted = readStored(`${this.#draft}.pasted`) ?? [];
    if (this.attachments.pasted.length) this.attachments.dropPasted();
    for (const text of pasted) this.#addPasted(text);
  }

  #show() {
    const working = Boolean(this.#page.store.get("working"));
    const words = Boolean(this.text.value.trim()) || !this.attachments.empty;
    const at = document.activeElement;
    this.halt.hidden = !working;
    this.halt.disabled = this.#stopping;
    this.halt.classList.toggle("primary", !words);
    this.go.hidden = working && !words;
    this.go.disabled = this.attachments.busy || !words;
    this.compare.hidden = working || !words;
    this.when.hidden = !working || !words;
    // A button that is hidden must not lose the focus.
    if ([this.go, this.halt, this.when, this.compare].includes(at) && (at.hidden || at.disabled)) focusMessageBox();
    this.text.placeholder = t(working ? "composer.placeholder.working" : "composer.placeholder");
  }
}

/** The text of a key, and its explanation. */
function named(key) {
  return [t(key), t(`${key}.hint`)];
}

/** A select with a label; `rows`: `[value, label, explanation]`. */
function choice(name, rows, onChange, value) {
  const options = rows.map(([of, words, means]) => h("option", { value: of, title: means }, words));
  const select = h("select", { class: "choice", "aria-label": name, onchange: () => onChange(select.value) }, options);
  select.value = rows.some(([of]) => of === value) ? value : rows[0][0];
  return select;
}
