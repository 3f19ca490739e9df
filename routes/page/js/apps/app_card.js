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
const HEIGHTS = [80, 640];
const MOST_SHRUNK = 20; // times: what stands below is not moved to and fro
const LONGEST = { link: 2_000, words: 20_000 }; // characters
const CALL_MS = 3_600_000; // a call may wait for an approval
const SAVE_MS = 1_000; // between two contexts that an app gives the model
const SETTLE_MS = 500; // a question that has just come or moved takes no clicks
const AGAIN_MS = 5_000; // after a person has declined
const TEARDOWN_MS = 500;

await styleAt("css/later/apps.css").catch(() => undefined);

const running = new Set(); // in the order of their beginning

export class AppCard {
  #frame = null;
  #bridge = null;
  #ends = null; // what goes on with the frame
  #isReady = false; // before that nothing may be said to an app
  #said = ""; // the context that it knows
  #modes = []; // that it can be shown in
  #fits = { height: 0, shrunk: 0, at: 0 };
  #asks = false;
  #declined = Number.NEGATIVE_INFINITY;
  #wanted = null; // what it last wanted to give the model
  #saving = null;
  #full = null; // the dialog over the page

  /** `given`: the arguments of the call; `view`: its run. A shared conversation has only the names of an app. */
  constructor(event, given, view) {
    Object.assign(this, { event, given, view });
    this.label = t("apps.frame", { server: escapeLine(event.server) });
    this.place = h("div", { class: "artefact-frame", hidden: true });
    this.note = h("p", { class: "artefact-note faint", role: "status" });
    this.question = h("div", { class: "app-question" });
    this.words = h("p", { dir: "auto" });
    const remove = button(t("apps.remove"), () => this.#giveContext({}), { class: "quiet" });
    const about = h("summary", {}, t("apps.context"));
    this.context = h("details", { class: "app-context", hidden: true }, about, this.words, !this.#isPast && remove);
    const tool = (name, onclick) => button(t(`artefact.${name}`), onclick, { class: "quiet" });
    const tools = [tool("reload", () => this.#start()), tool("full", () => this.#enlarge())];
    const head = h("div", { class: "artefact-tools" }, h("p", { class: "faint" }, icon("plug"), this.label), tools);
    const parts = [head, this.place, this.note, this.question, this.context];
    const border = String(event.border ?? true);
    this.element = h("div", { class: "call-app", role: "group", "aria-label": this.label, dataset: { border } }, parts);
    if (!event.file) return void fill(this.element, this.note, this.#say("shared"));
    const seen = ([{ isIntersecting }]) => isIntersecting && !this.#frame && !this.note.textContent && this.#start();
    new IntersectionObserver(seen, { rootMargin: "300px" }).observe(this.element);
  }

  get #isPast() {
    return this.view.page.readOnly;
  }

  get #path() {
    return `/runs/${encodeURIComponent(this.view.asked.run)}/calls/${encodeURIComponent(this.event.call)}/app`;
  }

  #say(name, values) {
    this.note.textContent = t(`apps.${name}`, values);
  }

  /** Ends an app, which may end what it does, unseen, if it is asked politely. It begins again where it is shown again. */
  async leave({ politely = true } = {}) {
    const [frame, bridge, ends] = [this.#frame, this.#bridge, this.#ends];
    const isAsked = politely && this.#isReady && document.body.moveBefore && frame?.isConnected;
    this.#full?.close();
    running.delete(this);
    this.#frame = null;
    this.#isReady = false;
    this.#asks = false;
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
  #stop(why, values) {
    this.leave({ politely: why === "many" });
    this.place.hidden = true;
    this.#say(why, values);
  }

  /** From the beginning, in a frame of its own: nothing of the last one is left. */
  async #start() {
    this.leave();
    this.note.textContent = "";
    if (running.size >= MOST_RUNNING) [...running][0].#stop("many");
    running.add(this);
    const frame = (this.#frame = h("iframe", { class: "app-view", sandbox: "allow-scripts", title: this.label }));
    const { signal } = (this.#ends = new AbortController());
    try {
      const read = async (path) => (await request("GET", path, { signal })).text();
      const stored = (sha256) => read(`/sessions/${encodeURIComponent(this.view.asked.session)}/files/${sha256}`);
      const { file, result, csp } = this.event;
      const parts = [stored(file), stored(result), read(this.#path), heedsAllowlist()];
      const [html, answer, kept, heeds] = await Promise.all(parts);
      if (this.#frame === frame) this.#show(frame, { html, heeds, csp, result: JSON.parse(answer) }, JSON.parse(kept));
    } catch (error) {
      if (this.#frame === frame) this.#stop("not_loaded", { reason: error.message });
    }
  }

  #show(frame, { html, heeds, csp, result }, { state, tool, origin }) {
    const { signal } = this.#ends;
    if (origin) frame.sandbox.add("allow-same-origin");
    frame.src = frameAddress(csp, origin);
    this.#showContext(state?.context ?? {});
    this.#fits = { height: 0, shrunk: 0, at: 0 };
    this.#fit(state?.height ?? HEIGHTS[0] * 3);
    const send = (message) => frame.contentWindow?.postMessage(message, origin || "*"); // an opaque one has no name
    const bridge = new Bridge(send, this.#methods({ tool, csp, result }), () => this.#stop("loud"));
    this.#bridge = bridge;
    let given = 0;
    const hear = (event) => {
      if (event.source !== frame.contentWindow || event.origin !== (origin || "null")) return;
      const { ready, still, blocked } = Object(bridge.hear(event.data)?.artefact);
      if (still) this.#stop("offline");
      else if (blocked) this.#say("blocked");
      else if (ready && (given += 1) <= MOST_GIVEN) {
        bridge.abort();
        this.#isReady = false;
        send({ html, heeds, at: frame.src, app: true });
      }
    };
    addEventListener("message", hear, { signal });
    guardFocus(frame, signal, () => this.#stop("greedy"));
    const sized = new ResizeObserver(() => onNextFrame(this.#tell));
    sized.observe(frame);
    watchLook(this.#tell, signal);
    const stop = this.#isPast ? null : this.view.page.store.watch("approvals", (rows) => this.#uncover(rows));
    signal.addEventListener("abort", () => {
      sized.disconnect();
      stop?.();
    });
    this.place.hidden = false;
    fill(this.place, frame);
  }

  /** What an app may ask for. In the past it is shown, and does nothing. */
  #methods({ tool, csp, result }) {
    const act = (method) => (params, signal) => this.#act(method, params, signal);
    const acts = {
      "tools/call": act("tools/call"),
      "resources/read": act("resources/read"),
      "ui/open-link": ({ url }) => this.#openLink(url),
      "ui/message": (params) => this.#sendMessage(params),
      "ui/update-model-context": (params) => this.#giveContext(params),
    };
    return {
      ping: () => ({}),
      "ui/initialize": ({ appCapabilities }) => {
        const { availableDisplayModes: modes } = Object(appCapabilities);
        this.#modes = Array.isArray(modes) ? modes : [];
        const toolInfo = { id: this.event.call, tool };
        return {
          protocolVersion: PROTOCOL,
          hostInfo: { name: "dragoman", version: "1" },
          hostCapabilities: { ...(this.#isPast ? {} : CAPABILITIES), sandbox: { permissions: {}, csp } },
          hostContext: { ...hostContext(), ...this.#room(), toolInfo },
        };
      },
      "ui/notifications/initialized": () => {
        if (this.#isReady) return;
        this.#isReady = true;
        this.#bridge.notify("ui/notifications/tool-input", { arguments: JSON.parse(JSON.stringify(this.given)) });
        this.#bridge.notify("ui/notifications/tool-result", result);
      },
      "ui/notifications/size-changed": ({ height }) => this.#fit(height),
      "ui/notifications/request-teardown": () => this.#stop("ended"),
      "ui/request-display-mode": ({ mode }) => this.#changeMode(mode),
      ...(this.#isPast ? {} : acts),
    };
  }

  async #act(method, params, signal) {
    return (await post(this.#path, { method, params }, { signal, wait_ms: CALL_MS })).result;
  }

  /** The app learns what has changed around it. */
  #tell = () => {
    if (!this.#isReady) return;
    const context = { ...lookOf(), ...this.#room() };
    if (this.#said === (this.#said = JSON.stringify(context))) return;
    this.#bridge.notify("ui/notifications/host-context-changed", context);
  };

  #room() {
    const { clientWidth: width, clientHeight: height } = this.#frame;
    const [, maxHeight] = HEIGHTS;
    if (this.#full) return { displayMode: "fullscreen", containerDimensions: { width, height } };
    return { displayMode: "inline", containerDimensions: { width, maxHeight } };
  }

  #fit(wanted) {
    if (typeof wanted !== "number" || !(wanted >= 0)) return;
    const height = Math.min(HEIGHTS[1], Math.max(HEIGHTS[0], Math.ceil(wanted)));
    if (height === this.#fits.height || (height < this.#fits.height && (this.#fits.shrunk += 1) > MOST_SHRUNK)) return;
    Object.assign(this.#fits, { height, at: performance.now() });
    this.place.style.height = `${height}px`;
  }

  /** An app gets the whole page only by what a person has just done in it. */
  #changeMode(mode) {
    if (mode === "inline") this.#full?.close();
    const { isActive } = navigator.userActivation ?? {};
    if (mode === "fullscreen" && isActive && !this.#full && this.#modes.includes(mode)) this.#enlarge();
    return { mode: this.#full ? "fullscreen" : "inline" };
  }

  #enlarge() {
    if (!this.#frame) return;
    this.#full = enlarge(() => this.#frame, this.place, this.label, this.question);
    this.#full.addEventListener("close", () => {
      this.#full = null;
      this.context.before(this.question);
    });
  }

  /** What waits for a decision of a person is not hidden by an app. */
  #uncover(rows) {
    if (rows.some(({ session }) => session === this.view.asked.session)) this.#full?.close();
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
        const isEarly = performance.now() - Math.max(since, this.#fits.at) < SETTLE_MS;
        if (event.detail > 0 && isEarly) return;
        this.#asks = false;
        fill(this.question);
        if (agrees) return resolve();
        this.#declined = performance.now();
        reject(new RpcError("The person has declined."));
      };
      const buttons = buttonRow(button(yes, decide(true)), button(t("apps.decline"), decide(false)));
      fill(this.question, h("p", {}, words), shown, buttons);
    });
  }

  /** The address is shown as it is followed: a host of other letters is in ASCII. */
  async #openLink(address) {
    const url = typeof address === "string" && address.length <= LONGEST.link ? URL.parse(address) : null;
    if (!/^https?:$/.test(url?.protocol) || url.username || url.password)
      throw invalid("`url` is an address of http or https, without credentials.");
    const { protocol, host, pathname, search, hash } = url;
    const shown = h("p", { class: "app-words", dir: "ltr" }, `${protocol}//`, h("b", {}, host), pathname + search + hash);
    await this.#ask(t("apps.link"), shown, t("apps.open", { host }));
    await this.#act("ui/open-link", { url: url.href });
    open(url.href, "_blank", "noopener,noreferrer");
  }

  /** Only the words that a person has seen are sent. */
  async #sendMessage({ role, content }) {
    const text = textOf(content);
    if (role !== "user" || !text.trim() || text.length > LONGEST.words)
      throw invalid(`A message has the role user and up to ${LONGEST.words} characters of text.`);
    await this.#ask(t("apps.message"), h("p", { class: "app-words", dir: "auto" }, escapeText(text)), t("apps.send"));
    await this.#act("ui/message", { role, content: [{ type: "text", text }] });
  }

  /** The model gets the last of what an app gives it at short intervals. */
  async #giveContext({ content, structuredContent }) {
    if (contextText({ content, structuredContent }).length > LONGEST.words)
      throw invalid(`The model takes up to ${LONGEST.words} characters of an app.`);
    this.#wanted = { content: textOf(content) && [{ type: "text", text: textOf(content) }], structuredContent };
    this.#saving ??= this.#saveContext().finally(() => (this.#saving = null));
    await this.#saving;
  }

  async #saveContext() {
    while (this.#wanted) {
      const given = this.#wanted;
      this.#wanted = null;
      await this.#act("ui/update-model-context", given);
      this.#showContext(given);
      await new Promise((resolve) => setTimeout(resolve, SAVE_MS));
    }
  }

  #showContext(given) {
    const text = contextText(given);
    this.words.textContent = escapeText(text);
    this.context.hidden = !text;
  }
}

const textOf = (content) =>
  [content]
    .flat()
    .filter((part) => isObject(part) && part.type === "text" && typeof part.text === "string")
    .map(({ text }) => text)
    .join("\n\n");

const contextText = ({ content, structuredContent: structure }) =>
  [textOf(content), isObject(structure) && JSON.stringify(structure, null, 1)].filter(Boolean).join("\n\n");

/** The frame with the policy for what an admin has allowed. */
function frameAddress(csp, origin) {
  const address = new URL(origin ? new URL(FRAME).pathname : FRAME, origin || FRAME);
  for (const [name, domains] of [["connect", csp?.connectDomains], ["resource", csp?.resourceDomains]])
    if (domains?.length) address.searchParams.set(name, domains.join(" "));
  return address.href;
}
