/** One MCP server in the panel. Its name, instructions, tools and log are untrusted text. */

import { get, post, remove } from "../feed/api.js";
import { unifiedDiff } from "../text/diff.js";
import { announce, buttonRow, fill, h, stack } from "../dom/elements.js";
import { escapeLine } from "../text/exact_text.js";
import {
  actionButton,
  runOnce,
  collapsible,
  Outcome,
  factList,
  confirmButton,
  place,
  unlessChanged,
} from "../dom/forms.js";
import { offersOf } from "./mcp_offers.js";
import { STATES } from "./mcp_states.js";
import { trustRows } from "./mcp_trust.js";
import { language, t } from "../dom/more_texts.js";

/**
 * `list` is refreshed after each action. What has not changed stays in its place: a server that connects again and
 * again takes away neither a question that waits for its answer nor a form that is half filled in.
 */
export class Server {
  #parts = new Map();

  constructor(list, name) {
    Object.assign(this, { list, name, outcome: new Outcome() });
    this.at = `/mcp/servers/${encodeURIComponent(name)}`;
    this.buttons = buttonRow();
    this.element = h("section", { class: "server", "aria-label": name });
  }

  /** Returns the element. */
  show(status) {
    if (this.status && this.status.state !== status.state) this.outcome.clear();
    this.status = status;
    const { state, error, auth_url, next_try, held, from_api, restarts, exit_code } = status;
    const { tools, token_estimate, classified, trust } = status;
    const on = state !== "disabled";
    this.open = new Set([...this.element.querySelectorAll("details[open]")].map((one) => one.dataset.part));
    place(this.buttons, [
      ...this.#part("reconnect", on, () => on && this.#action("reconnect", t("mcp.reconnect"))),
      ...this.#part("switch", on, () =>
        on ? this.#action("disable", t("mcp.disable")) : this.#action("enable", t("mcp.enable")),
      ),
      ...this.#part("remove", from_api, () => from_api && this.#removal()),
    ]);
    place(this.element, [
      ...this.#part("head", state, () => this.#head()),
      ...this.#part("problem", [error, auth_url, next_try], () => this.#problem()),
      ...this.#part("held", held, () => this.#held()),
      ...this.#part("tools", [tools, token_estimate, classified, trust], () => this.#tools()),
      ...offersOf(this.at, status, this.list.page.composer, this.element),
      ...this.#part("about", [aboutRows(status), status.notes], () => this.#about()),
      ...this.#part("log", [state, restarts, exit_code], () => this.#logs()),
      this.buttons,
      this.outcome.element,
    ]);
    return this.element;
  }

  /** The elements of a part, which are made again if `from` has changed. */
  #part(key, from, make) {
    const part = unlessChanged(this.#parts.get(key), from, () => {
      const elements = [make()].flat(Infinity).filter(Boolean);
      for (const one of elements) if (one.localName === "details") one.open = this.open.has(one.dataset.part);
      return { elements };
    });
    this.#parts.set(key, part);
    return part.elements;
  }

  #head() {
    const { name, state } = this.status;
    return h(
      "h3",
      { dir: "auto" },
      h("span", { class: "dot", dataset: { state }, "aria-hidden": "true" }),
      h("span", { class: "server-name" }, escapeLine(name)),
      h("span", { class: "faint" }, STATES.includes(state) ? t(`mcp.state.${state}`) : state),
    );
  }

  #problem() {
    const { error, auth_url, next_try } = this.status;
    const link = auth_url ? signIn(auth_url) : null;
    const stop = /[.!?]$/.test(error) ? "" : ".";
    const again = next_try ? `${stop} ${t("mcp.next_try", { time: clock(next_try) })}` : "";
    return [error && h("p", { class: "outcome", dir: "auto", dataset: { kind: "problem" } }, error, again), link];
  }

  #held() {
    const { held } = this.status;
    const count = held.length;
    if (!count) return null;
    const words = h("p", {}, h("strong", {}, t("mcp.held", { count })), " ", t("mcp.held.meaning", { count }));
    const all = count > 1 && actionButton(t("mcp.approve.all"), this.outcome, () => this.#approve(held));
    return h("div", { class: "held" }, words, [...held.map((one) => this.#heldTool(one)), all]);
  }

  #heldTool(held) {
    const { tool, why, diff } = held;
    const label = { "aria-label": t("mcp.approve.named", { name: tool || t("mcp.instructions.title") }) };
    return h(
      "div",
      { class: "held-tool" },
      h("h4", { dir: "auto" }, tool ? escapeLine(tool) : t("mcp.instructions.title")),
      h("p", { class: "faint", dir: "auto" }, escapeLine(why)),
      diff && unifiedDiff(diff),
      actionButton(t("mcp.approve"), this.outcome, () => this.#approve([held]), label),
    );
  }

  /** Approves exactly the digests that were shown. */
  async #approve(held) {
    let problem = null;
    try {
      for (const { tool, digest } of held) await post(`${this.at}/approve`, { tool, digest });
      const names = held.map(({ tool }) => (tool ? escapeLine(tool) : t("mcp.instructions.title")));
      announce(t("mcp.approved", { names: names.join(", ") }));
    } catch (error) {
      if (error.code !== "tool_changed") throw error;
      problem = error.message;
    }
    await this.list.refresh(problem);
  }

  #tools() {
    const { tools, token_estimate: tokens } = this.status;
    if (!tools.length) return null;
    return collapsible(t("mcp.tools", { count: tools.length, tokens }), () => this.#toolList(tools), "tools");
  }

  #toolList(tools) {
    if (this.status.classified.length) return h("div", { class: "tool-rights" }, trustRows(this, this.open));
    const names = tools.map((name) => h("li", { dir: "auto" }, escapeLine(name)));
    return h("ul", { class: "tool-names" }, names);
  }

  #about() {
    const rows = aboutRows(this.status);
    const notes = this.status.notes.map((note) => h("li", { dir: "auto", class: "faint" }, note));
    return collapsible(t("mcp.details"), () => stack(factList(rows), notes.length > 0 && h("ul", {}, notes)), "about");
  }

  #logs() {
    const lines = h("pre", { class: "log", tabindex: 0, "aria-label": t("mcp.log.named", { name: this.name }) });
    const load = async () => {
      const { lines: said } = await get(`${this.at}/logs`);
      fill(lines, said.length ? said.join("\n") : t("mcp.log.empty"));
    };
    const make = () => {
      const again = actionButton(t("mcp.reload"), this.outcome, load);
      runOnce(again, this.outcome, load);
      return stack(lines, buttonRow(again));
    };
    return collapsible(t("mcp.log"), make, "log");
  }

  #action(word, label) {
    return actionButton(label, this.outcome, async () => {
      await post(`${this.at}/${word}`);
      await this.list.refresh();
    });
  }

  #removal() {
    const away = async () => {
      await remove(this.at);
      await this.list.refresh();
    };
    const question = t("mcp.remove.sure", { name: this.name });
    return confirmButton(t("mcp.remove"), question, t("mcp.remove.yes"), this.outcome, away);
  }
}

function aboutRows(status) {
  const { transport, target, from_api, pid, exit_code, protocol, connect_ms } = status;
  const { restarts, calls, junk_lines, instructions } = status;
  return [
    [t("mcp.transport"), transport],
    [t(transport === "stdio" ? "mcp.command" : "mcp.address"), target],
    [t("mcp.origin"), from_api ? t("mcp.origin.database") : "mcp.json"],
    [t("mcp.process"), pid],
    [t("mcp.exit_code"), exit_code],
    [t("mcp.protocol"), protocol],
    [t("mcp.connected_in"), connect_ms && `${Math.round(connect_ms)} ms`],
    [t("mcp.restarts"), restarts || null],
    [t("mcp.calls"), calls || null],
    [t("mcp.invalid_lines"), junk_lines || null],
    [t("mcp.instructions"), instructions],
  ];
}

const clock = (at) => new Date(at * 1000).toLocaleTimeString(language);

/** A link to the sign-in page of a server, if it is an http(s) URL; it opens in a new tab. */
function signIn(address) {
  const url = URL.canParse(address) ? new URL(address) : null;
  if (!url || !["http:", "https:"].includes(url.protocol))
    return h("p", { class: "problem" }, t("mcp.sign_in.unusable"));
  const props = { href: url.href, target: "_blank", rel: "noopener noreferrer", class: "sign-in-link" };
  const link = h("a", props, t("mcp.sign_in", { host: url.host }));
  return h("p", {}, link, h("span", { class: "faint" }, " ", t("mcp.sign_in.hint")));
}
