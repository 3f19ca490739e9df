/**
 * The app of a call (MCP Apps, SEP-1865): HTML of the tool's server in the frame of previews, which has neither origin
 * nor network. All that it says is untrusted. Its calls go through the server as those of the model do; what it wants to
 * send, to open or to give the model a person sees.
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

const PROTOCOL = "2026-01-26";
const ACTS = { openLinks: {}, serverTools: {}, serverResources: {}, message: { text: {} } };
const CAPABILITIES = { ...ACTS, updateModelContext: { text: {}, structuredContent: {} } };
const MOST_RUNNING = 6; // apps of a page
const MOST_GIVEN = 5; // times that a frame gets its document: it may load itself anew
const [LEAST, USUAL, MOST] = [80, 240, 640]; // of a height
const MOST_SHRUNK = 20; // times: what stands below is not moved to and fro
const LONGEST = { link: 2_000, words: 20_000 }; // characters
const CALL_MS = 3_600_000; // a call may wait for an approval
const SAVE_MS = 300; // in which what an app says again replaces what it has said
const SETTLE_MS = 500; // a question that has just come or moved takes no clicks
const AGAIN_MS = 5_000; // after a person has declined
const TEARDOWN_MS = 500;

await styleAt("css/later/apps.css").catch(() => undefined);

const running = new Set(); // in the order of their beginning
const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class AppCard {
  #frame = null;
  #bridge = null;
  #ends = null; // what goes on with the frame
  #isReady = false; // before that nothing may be said to an app
  #told = ""; // the context that it knows
  #modes = []; // that it can be shown in
  #fits = { height: 0, shrunk: 0, at: 0 };
  #asks = false;
  #declined = Number.NEGATIVE_INFINITY;
  #saves = {}; // by method, what it last said and when that is kept
  #full = null; // the dialog over the page

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
    const remove = button(t("apps.remove"), () => this.#giveContext({}), { class: "quiet" });
    const about = h("summary", {}, t("apps.context"));
    this.context = h("details", { class: "app-context", hidden: true }, about, this.words, !this.isPast && remove);
    const tool = (name, onclick) => button(t(`artefact.${name}`), onclick, { class: "quiet" });
    const tools = [tool("reload", () => this.#start()), tool("full", () => this.#enlarge())];
    const head = h("div", { class: "artefact-tools" }, h("p", { class: "faint" }, icon("plug"), this.label), tools);
    const parts = event.file ? [head, this.place, this.note, this.question, this.context] : this.note;
    const props = { class: "call-app", role: "group", "aria-label": this.label };
    this.element = h("div", { ...props, dataset: { border: String(event.border ?? true) } }, parts);
    if (!event.file) this.#say("apps.shared");
    const seen = ([{ isIntersecting }]) => isIntersecting && !this.#frame && !this.note.textContent && this.#start();
    new IntersectionObserver(seen, { rootMargin: "300px" }).observe(this.element);
  }

  #say(name, values) {
    this.note.textContent = t(name, values);
  }

  /** Ends an app. It may end what it does unseen, if that is wanted; it begins again where it is shown again. */
  async leave({ politely = true } = {}) {
    const [frame, bridge, ends] = [this.#frame, this.#bridge, this.#ends];
    const isAsked = politely && this.#isReady && document.body.moveBefore && frame?.isConnected;
    this.#full?.close();
    running.delete(this);
    this.#frame = null;
    this.#isReady = this.#asks = false;
    fill(this.question);
    if (isAsked) {
      frame.hidden = true;
      move(frame, document.body);
      await bridge.ask("ui/resource-teardown", {}, TEARDOWN_MS);
    }
    frame?.remove();
    bridge?.abort();
    ends?.abort();
  }

  /** Leaves a static card, which says why. */
  #stop(why, values, politely = false) {
    this.leave({ politely });
    this.place.hidden = true;
    this.#say(why, values);
  }

  /** From the beginning, in a frame of its own: nothing of the last one is left. */
  async #start() {
    this.leave();
    this.note.textContent = "";
    if (running.size >= MOST_RUNNING) [...running][0].#stop("apps.many", {}, true);
    running.add(this);
    const frame = (this.#frame = h("iframe", { class: "app-view", sandbox: "allow-scripts", title: this.label }));
    const { signal } = (this.#ends = new AbortController());
    try {
      const read = async (path) => (await request("GET", path, { signal })).text();
      const stored = (sha256) => read(`/sessions/${encodeURIComponent(this.session)}/files/${sha256}`);
      const parts = [stored(this.event.file), stored(this.event.result), read(this.path), heedsAllowlist()];
      const [html, result, kept, heeds] = await Promise.all(parts);
      if (this.#frame === frame) this.#show(frame, { html, heeds, app: true }, JSON.parse(result), JSON.parse(kept));
    } catch (error) {
      if (this.#frame === frame) this.#stop("apps.not_loaded", { reason: error.message });
    }
  }

  #show(frame, document, result, { state, tool, origin }) {
    const { signal } = this.#ends;
    if (origin) {
      frame.sandbox.add("allow-same-origin");
      // Frames of one origin can use each other, with which the app of one server would speak for another.
      for (const other of running) if (other.event.server !== this.event.server) other.#stop("apps.many", {}, true);
    }
    frame.src = frameAddress(this.event.csp, origin);
    this.#showContext(state.context ?? {});
    this.#fits = { height: 0, shrunk: 0, at: 0 };
    this.#fit(state.height ?? USUAL);
    const send = (message) => frame.contentWindow?.postMessage(message, origin || "*"); // an opaque one has no name
    const bridge = (this.#bridge = new Bridge(send, this.#methods(tool, result), () => this.#stop("artefact.loud")));
    let given = 0;
    const hear = (event) => {
      if (event.source !== frame.contentWindow || event.origin !== (origin || "null")) return;
      const { ready, still, blocked } = Object(bridge.hear(event.data)?.artefact);
      if (still) this.#stop("apps.offline");
      else if (blocked) this.#say("apps.blocked");
      else if (ready && (given += 1) <= MOST_GIVEN) {
        bridge.abort();
        this.#isReady = false;
        send({ ...document, at: frame.src });
      }
    };
    addEventListener("message", hear, { signal });
    guardFocus(frame, signal, () => this.#stop("artefact.greedy"));
    const sized = new ResizeObserver(() => onNextFrame(this.#tell));
    sized.observe(frame);
    watchLook(this.#tell, signal);
    // What waits for a decision of a person is not hidden by an app.
    const waits = (rows) => rows.some(({ session }) => session === this.session) && this.#full?.close();
    const stop = this.isPast ? null : this.store.watch("approvals", waits);
    signal.addEventListener("abort", () => [sized.disconnect(), stop?.()]);
    this.place.hidden = false;
    fill(this.place, frame);
  }

  /** What an app may ask for. In the past it is shown, and does nothing. */
  #methods(tool, result) {
    const { call: id, csp } = this.event;
    const acts = {
      "tools/call": (params, signal) => this.#act("tools/call", params, signal),
      "resources/read": (params, signal) => this.#act("resources/read", params, signal),
      "ui/open-link": ({ url }) => this.#openLink(url),
      "ui/message": (params) => this.#sendMessage(params),
      "ui/update-model-context": (params) => this.#giveContext(params),
    };
    return {
      ping: () => ({}),
      "ui/initialize": ({ appCapabilities }) => {
        this.#modes = [Object(appCapabilities).availableDisplayModes].flat();
        const sandbox = { csp: { connectDomains: csp.connectDomains, resourceDomains: csp.resourceDomains } };
        return {
          protocolVersion: PROTOCOL,
          hostInfo: { name: "dragoman", version: "1" },
          hostCapabilities: { ...(this.isPast ? {} : CAPABILITIES), sandbox },
          hostContext: { ...hostContext(), ...this.#room(), ...(tool && { toolInfo: { id, tool } }) },
        };
      },
      "ui/notifications/initialized": () => {
        if (this.#isReady) return;
        this.#isReady = true;
        this.#bridge.notify("ui/notifications/tool-input", { arguments: JSON.parse(JSON.stringify(this.given)) });
        this.#bridge.notify("ui/notifications/tool-result", result);
      },
      "ui/notifications/size-changed": ({ height }) => {
        if (this.#fit(height) && !this.isPast) this.#save("state", { height: this.#fits.height }).catch(() => null);
      },
      "ui/notifications/request-teardown": () => this.#stop("apps.ended", {}, true),
      "ui/request-display-mode": ({ mode }) => {
        if (mode === "inline") this.#full?.close();
        // An app gets the whole page only by what a person has just done in it.
        const isWanted = navigator.userActivation?.isActive && document.activeElement === this.#frame;
        if (mode === "fullscreen" && isWanted && !this.#full && this.#modes.includes(mode)) this.#enlarge();
        return { mode: this.#full ? "fullscreen" : "inline" };
      },
      ...(this.isPast ? {} : acts),
    };
  }

  async #act(method, params, signal) {
    return (await post(this.path, { method, params }, { signal, wait_ms: CALL_MS })).result;
  }

  /** The server gets the last of what an app says in a short time. */
  #save(method, params) {
    const save = (this.#saves[method] ??= {});
    save.params = params;
    save.done ??= later(SAVE_MS).then(() => {
      save.done = null;
      return this.#act(method, save.params);
    });
    return save.done;
  }

  /** The app learns what has changed around it. */
  #tell = () => {
    if (!this.#isReady) return;
    const context = { ...lookOf(), ...this.#room() };
    if (this.#told !== (this.#told = JSON.stringify(context)))
      this.#bridge.notify("ui/notifications/host-context-changed", context);
  };

  #room() {
    const { clientWidth: width, clientHeight: height } = this.#frame;
    if (this.#full) return { displayMode: "fullscreen", containerDimensions: { width, height } };
    return { displayMode: "inline", containerDimensions: { width, maxHeight: MOST } };
  }

  #fit(wanted) {
    const height = Math.min(MOST, Math.max(LEAST, Math.ceil(wanted)));
    const fits = this.#fits;
    const isNew = typeof wanted === "number" && Number.isFinite(height) && height !== fits.height;
    if (!isNew || (height < fits.height && (fits.shrunk += 1) > MOST_SHRUNK)) return false;
    Object.assign(fits, { height, at: performance.now() });
    this.place.style.height = `${height}px`;
    return true;
  }

  #enlarge() {
    if (!this.#frame) return;
    this.#full = enlarge(() => this.#frame, this.place, this.label, this.question);
    this.#full.addEventListener("close", () => {
      this.#full = null;
      this.context.before(this.question);
    });
  }

  /** Returns once a person agrees to what is shown. The question takes neither the focus nor a click that it slid under. */
  #ask(words, shown, yes) {
    if (this.#asks) throw new RpcError("The person is being asked something else.");
    if (performance.now() - this.#declined < AGAIN_MS) throw new RpcError("The person has just declined.");
    this.#asks = true;
    announce(`${this.label}: ${words}`);
    const since = performance.now();
    return new Promise((resolve, reject) => {
      const decide = (agrees) => (event) => {
        if (event.detail > 0 && performance.now() - Math.max(since, this.#fits.at) < SETTLE_MS) return;
        this.#asks = false;
        fill(this.question);
        if (agrees) return resolve();
        this.#declined = performance.now();
        reject(new RpcError("The person has declined."));
      };
      const buttons = buttonRow(button(yes, decide(true)), button(t("apps.decline"), decide(false)));
      fill(this.question, h("p", {}, words), h("p", { class: "app-words", dir: "auto" }, shown), buttons);
    });
  }

  /** The address is shown as it is followed: a host of other letters is in ASCII. */
  async #openLink(address) {
    const url = typeof address === "string" && address.length <= LONGEST.link ? URL.parse(address) : null;
    if (!/^https?:$/.test(url?.protocol) || url.username || url.password)
      throw invalid("`url` is an address of http or https, without credentials.");
    const { protocol, host, pathname, search, hash, href } = url;
    const shown = [h("bdi", {}, `${protocol}//`, h("b", {}, host), escapeLine(pathname + search + hash))];
    await this.#ask(t("apps.link"), shown, t("apps.open", { host }));
    await this.#act("ui/open-link", { url: href });
    open(href, "_blank", "noopener,noreferrer");
  }

  /** Only the words that a person has seen are sent. */
  async #sendMessage({ role, content }) {
    const text = textOf(content);
    if (role !== "user" || !text.trim() || text.length > LONGEST.words)
      throw invalid(`A message has the role user and up to ${LONGEST.words} characters of text.`);
    await this.#ask(t("apps.message"), escapeText(text), t("apps.send"));
    await this.#act("ui/message", { role, content: [{ type: "text", text }] });
  }

  async #giveContext({ content, structuredContent }) {
    const text = textOf(content);
    const given = { content: text ? [{ type: "text", text }] : [], structuredContent };
    if (contextText(given).length > LONGEST.words)
      throw invalid(`The model takes up to ${LONGEST.words} characters of an app.`);
    await this.#save("ui/update-model-context", given);
    this.#showContext(this.#saves["ui/update-model-context"].params);
  }

  #showContext(given) {
    const text = contextText(given);
    this.words.textContent = escapeText(text);
    this.context.hidden = !text;
  }
}

/** The text of one or several parts of a message. */
function textOf(content) {
  const isText = (part) => isObject(part) && part.type === "text" && typeof part.text === "string";
  return [content]
    .flat()
    .filter(isText)
    .map(({ text }) => text)
    .join("\n\n");
}

const contextText = ({ content, structuredContent: structure }) =>
  [textOf(content), isObject(structure) && JSON.stringify(structure, null, 1)].filter(Boolean).join("\n\n");

/** The frame with the policy for what an admin has allowed. */
function frameAddress(csp, origin) {
  const address = new URL(origin ? new URL(FRAME).pathname : FRAME, origin || FRAME);
  const asked = { connect: csp.connectDomains, resource: csp.resourceDomains };
  for (const [name, domains] of Object.entries(asked))
    if (domains?.length) address.searchParams.set(name, domains.join(" "));
  return address.href;
}
