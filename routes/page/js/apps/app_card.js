/**
 * The app of a call (MCP Apps, SEP-1865): HTML of the tool's server in the frame of previews, which has neither origin
 * nor network. All that it says is untrusted. Its calls go through the server as those of the model do; what it wants
 * to send, to open or to give the model a person sees.
 */

import { post, request } from "../feed/api.js";
import { announce, button, buttonRow, fill, h, icon, onNextFrame } from "../dom/elements.js";
import { styleAt } from "../dom/library.js";
import { t } from "../dom/more_texts.js";
import { enlarge, FRAME, move } from "../text/artefact.js";
import { escapeLine, escapeText } from "../text/exact_text.js";
import { guardFocus } from "../text/focus_guard.js";
import { heedsAllowlist } from "../text/offline_proof.js";
import { Bridge, invalid, isObject, RpcError } from "./bridge.js";
import { hostContext, lookOf, watchLook } from "./host_context.js";

const CAPABILITIES = {
  ...{ openLinks: {}, serverTools: {}, serverResources: {}, message: { text: {} } },
  updateModelContext: { text: {}, structuredContent: {} },
};
const HEIGHTS = { least: 80, usual: 240, most: 640 };
// Apps of a page; times that a frame loads itself, and that it shrinks: what stands below is not moved to and fro.
const MOST = { running: 6, loads: 5, shrunk: 20, link: 2_000, words: 20_000 };
// A call may wait for an approval; a question that has just come or moved takes no clicks; an app may end what it does.
const MS = { call: 3_600_000, give: 300, settle: 500, again: 5_000, end: 500 };

await styleAt("css/later/apps.css").catch(() => undefined);

const running = new Set(); // in the order of their beginning

export class AppCard {
  #app = null; // what runs: its frame and bridge, whether it is ready for notifications, and what it knows
  #full = null; // the dialog over the page
  #asks = false;
  #declined = Number.NEGATIVE_INFINITY;
  #given = null; // what an app last wanted to give the model
  #giving = null;

  /** `given`: the arguments of the call; `view`: its run. A shared conversation has only the names of an app. */
  constructor(event, given, view) {
    Object.assign(this, { event, given, isPast: view.page.readOnly, store: view.page.store });
    this.session = view.asked.session;
    this.path = `/runs/${encodeURIComponent(view.asked.run)}/calls/${encodeURIComponent(event.call)}/app`;
    this.label = t("apps.frame", { server: escapeLine(event.server) });
    this.place = h("div", { class: "artefact-frame", hidden: true });
    this.note = h("p", { class: "artefact-note faint", role: "status" });
    this.question = h("div", { class: "app-question" });
    this.words = h("p", { dir: "auto" });
    const remove = button(t("mcp.remove"), () => this.#giveContext({}), { class: "quiet" });
    const about = h("summary", {}, t("apps.context"));
    this.context = h("details", { class: "app-context", hidden: true }, about, this.words, !this.isPast && remove);
    const tool = (name, onclick) => button(t(`artefact.${name}`), onclick, { class: "quiet" });
    const tools = [tool("reload", () => this.#start()), tool("full", () => this.#enlarge())];
    const head = h("div", { class: "artefact-tools" }, h("p", { class: "faint" }, icon("plug"), this.label), tools);
    const parts = event.file ? [head, this.place, this.note, this.question, this.context] : this.note;
    const props = { class: "call-app", role: "group", "aria-label": this.label };
    this.element = h("div", { ...props, dataset: { border: String(event.border ?? true) } }, parts);
    if (!event.file) this.note.textContent = t("apps.shared");
    const seen = ([{ isIntersecting }]) => isIntersecting && !this.#app && !this.note.textContent && this.#start();
    new IntersectionObserver(seen, { rootMargin: "300px" }).observe(this.element);
  }

  /** Ends an app. It may end what it does unseen, if that is wanted; it begins again where it is shown again. */
  async leave({ politely = true } = {}) {
    const app = this.#app;
    this.note.textContent = "";
    if (!app) return;
    this.#full?.close();
    running.delete(this);
    this.#app = null;
    this.#asks = false;
    fill(this.question);
    const isApart = !app.frame.sandbox.contains("allow-same-origin"); // from the app that begins meanwhile
    if (politely && isApart && app.isReady && document.body.moveBefore && app.frame.isConnected) {
      app.frame.hidden = true;
      move(app.frame, document.body);
      await app.bridge.ask("ui/resource-teardown", MS.end);
    }
    app.frame.remove();
    app.bridge?.abort();
    app.ends.abort();
  }

  /** Leaves a static card, which says why. */
  #stop(why, politely = false) {
    this.leave({ politely });
    this.place.hidden = true;
    this.note.textContent = t(why);
  }

  /** From the beginning, in a frame of its own: nothing of the last one is left. */
  async #start() {
    this.leave();
    if (running.size >= MOST.running) [...running][0].#stop("apps.stopped", true);
    running.add(this);
    const frame = h("iframe", { class: "app-view", sandbox: "allow-scripts allow-forms", title: this.label });
    const app = (this.#app = { frame, ends: new AbortController(), height: 0, shrunk: 0, moved: 0, loads: 0 });
    const read = async (path) => (await request("GET", path, { signal: app.ends.signal })).text();
    const stored = (sha256) => read(`/sessions/${encodeURIComponent(this.session)}/files/${sha256}`);
    const parts = [stored(this.event.file), stored(this.event.result), read(this.path), heedsAllowlist()];
    try {
      const [html, result, kept, heeds] = await Promise.all(parts);
      if (this.#app === app) this.#show({ html, heeds, app: true }, JSON.parse(result), JSON.parse(kept));
    } catch {
      if (this.#app === app) this.#stop("artefact.not_loaded");
    }
  }

  #show(page, result, { state, tool, origin }) {
    const app = this.#app;
    const { frame } = app;
    const { signal } = app.ends;
    if (origin) {
      frame.sandbox.add("allow-same-origin");
      // Frames of one origin can use each other, with which the app of one server would speak for another.
      for (const other of running) if (other.event.server !== this.event.server) other.#stop("apps.stopped");
    }
    frame.src = frameAddress(this.event.csp, origin);
    this.#showContext(state.context ?? {});
    this.#fit(HEIGHTS.usual);
    const send = (message) => frame.contentWindow?.postMessage(message, origin || "*"); // an opaque one has no name
    app.bridge = new Bridge(send, this.#methods(tool, result), () => this.#stop("artefact.loud"));
    const hear = (event) => {
      if (event.source !== frame.contentWindow || event.origin !== (origin || "null")) return;
      const { ready, still, blocked } = Object(app.bridge.hear(event.data)?.artefact);
      if (still) this.#stop("apps.offline");
      else if (blocked) this.note.textContent = t("apps.blocked");
      else if (ready && (app.loads += 1) <= MOST.loads) {
        app.bridge.abort();
        app.isReady = false;
        send({ ...page, at: frame.src });
      }
    };
    addEventListener("message", hear, { signal });
    guardFocus(frame, signal, () => this.#stop("artefact.greedy"));
    const sized = new ResizeObserver(() => onNextFrame(this.#tell));
    sized.observe(frame);
    watchLook(this.#tell, signal);
    // What waits for a decision of a person is not hidden by an app.
    const isHere = ({ session, path = [] }) => [{ session }, ...path].some((one) => one.session === this.session);
    const waits = (rows) => rows.some(isHere) && this.#full?.close();
    const stop = this.isPast ? null : this.store.watch("approvals", waits);
    signal.addEventListener("abort", () => [sized.disconnect(), stop?.()]);
    this.place.hidden = false;
    fill(this.place, frame);
  }

  /** What an app may ask for. In the past it is shown, and does nothing. */
  #methods(tool, result) {
    const app = this.#app;
    const { connectDomains, resourceDomains } = this.event.csp;
    const act = (method) => [method, (params, signal) => this.#act(method, params, signal)];
    const acts = {
      ...Object.fromEntries([act("tools/call"), act("resources/read")]),
      "ui/open-link": ({ url }) => this.#openLink(url),
      "ui/message": (params) => this.#sendMessage(params),
      "ui/update-model-context": (params) => this.#giveContext(params),
    };
    return {
      ping: () => ({}),
      "ui/initialize": ({ appCapabilities }) => {
        app.modes = [Object(appCapabilities).availableDisplayModes].flat();
        const sandbox = { csp: { connectDomains, resourceDomains } };
        return {
          protocolVersion: "2026-01-26",
          hostInfo: { name: "dragoman", version: "1" },
          hostCapabilities: { ...(this.isPast ? {} : CAPABILITIES), sandbox },
          hostContext: { ...hostContext(), ...this.#room, ...(tool && { toolInfo: { id: this.event.call, tool } }) },
        };
      },
      "ui/notifications/initialized": () => {
        if (app.isReady) return;
        app.isReady = true;
        app.bridge.notify("ui/notifications/tool-input", { arguments: JSON.parse(JSON.stringify(this.given)) });
        app.bridge.notify("ui/notifications/tool-result", result);
      },
      "ui/notifications/size-changed": ({ height }) => this.#fit(height),
      "ui/notifications/request-teardown": () => this.#stop("apps.stopped", true),
      "ui/request-display-mode": ({ mode }) => {
        if (mode === "inline") this.#full?.close();
        // An app gets the whole page only by what a person has just done in it.
        const isWanted = navigator.userActivation?.isActive && document.activeElement === app.frame;
        if (mode === "fullscreen" && isWanted && !this.#full && app.modes?.includes(mode)) this.#enlarge();
        return { mode: this.#room.displayMode };
      },
      ...(this.isPast ? {} : acts),
    };
  }

  async #act(method, params, signal) {
    return (await post(this.path, { method, params }, { signal, wait_ms: MS.call })).result;
  }

  /** The app learns what has changed around it. */
  #tell = () => {
    if (!this.#app?.isReady) return;
    const context = { ...lookOf(), ...this.#room };
    if (this.#app.known !== (this.#app.known = JSON.stringify(context)))
      this.#app.bridge.notify("ui/notifications/host-context-changed", context);
  };

  get #room() {
    const { clientWidth: width, clientHeight: height } = this.#app.frame;
    if (this.#full) return { displayMode: "fullscreen", containerDimensions: { width, height } };
    return { displayMode: "inline", containerDimensions: { width, maxHeight: HEIGHTS.most } };
  }

  #fit(wanted) {
    const app = this.#app;
    const height = Math.min(HEIGHTS.most, Math.max(HEIGHTS.least, Math.ceil(wanted)));
    if (typeof wanted !== "number" || Number.isNaN(height) || height === app.height) return;
    if (height < app.height && (app.shrunk += 1) > MOST.shrunk) return;
    Object.assign(app, { height, moved: performance.now() });
    this.place.style.height = `${height}px`;
  }

  #enlarge() {
    if (!this.#app) return;
    this.#full = enlarge(() => this.#app?.frame, this.place, this.label, this.question);
    this.#full.addEventListener("close", () => {
      this.#full = null;
      this.context.before(this.question);
    });
  }

  /** Returns once a person agrees to what is shown. The question takes neither the focus nor a click meant for another. */
  #ask(words, shown, yes) {
    if (this.#asks) throw new RpcError("The person is being asked something else.");
    if (performance.now() - this.#declined < MS.again) throw new RpcError("The person has just declined.");
    this.#asks = true;
    announce(`${this.label}: ${words}`);
    const since = performance.now();
    return new Promise((resolve, reject) => {
      const decide = (agrees) => (event) => {
        if (event.detail > 0 && performance.now() - Math.max(since, this.#app.moved) < MS.settle) return;
        this.#asks = false;
        fill(this.question);
        if (agrees) return resolve();
        this.#declined = performance.now();
        reject(new RpcError("The person has declined."));
      };
      const buttons = buttonRow(button(yes, decide(true)), button(t("project.decline"), decide(false)));
      fill(this.question, h("p", {}, words), h("p", { class: "app-words", dir: "auto" }, shown), buttons);
    });
  }

  /** The address is shown as it is followed: a host of other letters is in ASCII. */
  async #openLink(address) {
    const url = typeof address === "string" && address.length <= MOST.link ? URL.parse(address) : null;
    if (!/^https?:$/.test(url?.protocol) || url.username || url.password)
      throw invalid("`url` is an address of http or https, without credentials.");
    const { host, href, origin } = url; // the origin ends with the host
    const shown = [origin.slice(0, -host.length), h("b", {}, host), escapeLine(href.slice(origin.length))];
    await this.#ask(t("apps.link"), h("bdi", {}, shown), t("apps.open", { host }));
    await this.#act("ui/open-link", { url: href });
    open(href, "_blank", "noopener,noreferrer");
  }

  /** Only the words that a person has seen are sent. */
  async #sendMessage({ role, content }) {
    const text = textOf(content);
    if (role !== "user" || !text.trim() || text.length > MOST.words)
      throw invalid(`A message has the role user and up to ${MOST.words} characters of text.`);
    await this.#ask(t("apps.message"), escapeText(text), t("composer.send"));
    await this.#act("ui/message", { role, content: [{ type: "text", text }] });
  }

  /** The model gets the last of what an app gives it in a short time. */
  async #giveContext({ content, structuredContent }) {
    const text = textOf(content);
    const given = { content: text ? [{ type: "text", text }] : [], structuredContent };
    if (contextText(given).length > MOST.words)
      throw invalid(`The model takes up to ${MOST.words} characters of an app.`);
    this.#given = given;
    this.#giving ??= new Promise((resolve) => setTimeout(resolve, MS.give)).then(async () => {
      this.#giving = null;
      await this.#act("ui/update-model-context", this.#given);
      this.#showContext(this.#given);
    });
    await this.#giving;
  }

  #showContext(given) {
    const text = contextText(given);
    this.words.textContent = escapeText(text);
    this.context.hidden = !text;
  }
}

/** The text of one or several parts of a message. */
function textOf(content) {
  const texts = [content].flat().map((part) => isObject(part) && part.type === "text" && part.text);
  return texts.filter((text) => typeof text === "string").join("\n\n");
}

const contextText = ({ content, structuredContent: structure }) =>
  [textOf(content), isObject(structure) && JSON.stringify(structure, null, 1)].filter(Boolean).join("\n\n");

/** The frame with the policy for what an admin has allowed. */
function frameAddress({ connectDomains: connect = [], resourceDomains: resource = [] }, origin) {
  const address = new URL(origin ? new URL(FRAME).pathname : FRAME, origin || FRAME);
  for (const [name, domains] of Object.entries({ connect, resource }))
    if (domains.length) address.searchParams.set(name, domains.join(" "));
  return address.href;
}
