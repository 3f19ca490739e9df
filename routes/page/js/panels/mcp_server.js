/** One MCP server in the panel. Its name, instructions, tools and log are untrusted text. */

import { get, post, remove } from "../feed/api.js";
import { unifiedDiff } from "../text/diff.js";
import { fill, h, announce } from "../dom/elements.js";
import { escapeLine } from "../text/exact_text.js";
import { actionButton, runOnce, collapsible, formatNumber, Outcome, factList, confirmButton } from "../dom/forms.js";
import { offersOf } from "./mcp_offers.js";
import { STATES } from "./mcp_states.js";
import { trustRows } from "./mcp_trust.js";

/** `list` is refreshed after each action; `old` is the element that this one replaces. */
export class Server {
  constructor(list, status, old) {
    Object.assign(this, { list, status, outcome: new Outcome() });
    this.at = `/mcp/servers/${encodeURIComponent(status.name)}`;
    const open = new Set([...(old?.querySelectorAll("details[open]") ?? [])].map((one) => one.dataset.part));
    this.open = open;
    this.element = h(
      "section",
      { class: "server", "aria-label": status.name },
      this.#head(),
      this.#problem(),
      this.#held(),
      this.#tools(),
      offersOf(this.at, status, list.page.composer, old),
      this.#about(),
      this.#logs(),
      this.#buttons(),
      this.outcome.element,
    );
    for (const part of this.element.querySelectorAll("details")) part.open = open.has(part.dataset.part);
  }

  #head() {
    const { name, state } = this.status;
    return h(
      "h3",
      { dir: "auto" },
      h("span", { class: "dot", dataset: { state }, "aria-hidden": "true" }),
      h("span", { class: "server-name" }, escapeLine(name)),
      h("span", { class: "faint" }, STATES[state] ?? state),
    );
  }

  #problem() {
    const { error, auth_url, next_try } = this.status;
    const link = auth_url ? signIn(auth_url) : null;
    const again = next_try
      ? `${/[.!?]$/.test(error) ? "" : "."} Next attempt at ${new Date(next_try * 1000).toLocaleTimeString()}.`
      : "";
    return [error && h("p", { class: "outcome", dir: "auto", dataset: { kind: "problem" } }, error, again), link];
  }

  #held() {
    const { held } = this.status;
    if (!held.length) return null;
    return h(
      "div",
      { class: "held" },
      h(
        "p",
        {},
        h("strong", {}, `${held.length === 1 ? "A tool is" : `${held.length} tools are`} held. `),
        `Models do not see ${held.length === 1 ? "it" : "them"} until you approve the change.`,
      ),
      held.map((one) => this.#heldTool(one)),
      held.length > 1 && actionButton("Approve all", this.outcome, () => this.#approve(held)),
    );
  }

  #heldTool(held) {
    const { tool, why, diff } = held;
    return h(
      "div",
      { class: "held-tool" },
      h("h4", { dir: "auto" }, tool ? escapeLine(tool) : "Instructions of the server"),
      h("p", { class: "faint", dir: "auto" }, escapeLine(why)),
      diff && unifiedDiff(diff),
      actionButton("Approve", this.outcome, () => this.#approve([held]), {
        "aria-label": `Approve ${tool || "its instructions"}`,
      }),
    );
  }

  /** Approves exactly the digests that were shown. */
  async #approve(held) {
    let problem = null;
    try {
      for (const { tool, digest } of held) await post(`${this.at}/approve`, { tool, digest });
      announce(`Approved: ${held.map(({ tool }) => escapeLine(tool)).join(", ")}`);
    } catch (error) {
      if (error.code !== "tool_changed") throw error;
      problem = error.message;
    }
    await this.list.refresh(problem);
  }

  #tools() {
    const { tools, token_estimate: cost } = this.status;
    if (!tools.length) return null;
    const details = collapsible(`${tools.length} tools, about ${formatNumber(cost)} tokens`, () =>
      this.status.classified.length
        ? h("div", { class: "tool-rights" }, trustRows(this, this.open))
        : h(
            "ul",
            { class: "tool-names" },
            tools.map((name) => h("li", { dir: "auto" }, escapeLine(name))),
          ),
    );
    details.dataset.part = "tools";
    return details;
  }

  #about() {
    const {
      transport,
      target,
      from_api,
      pid,
      exit_code,
      protocol,
      connect_ms,
      restarts,
      calls,
      notes,
      junk_lines,
      instructions,
    } = this.status;
    const make = () =>
      h(
        "div",
        { class: "stack" },
        factList([
          ["Transport", transport],
          [transport === "stdio" ? "Command" : "Address", target],
          ["Configured in", from_api ? "the database (added here)" : "mcp.json"],
          ["Process", pid],
          ["Exit code", exit_code],
          ["Protocol", protocol],
          ["Connected in", connect_ms && `${Math.round(connect_ms)} ms`],
          ["Restarts", restarts || null],
          ["Active calls", calls || null],
          ["Invalid lines", junk_lines || null],
          ["Instructions", instructions],
        ]),
        notes.length > 0 &&
          h(
            "ul",
            {},
            notes.map((note) => h("li", { dir: "auto", class: "faint" }, note)),
          ),
      );
    const details = collapsible("Details", make);
    details.dataset.part = "about";
    return details;
  }

  #logs() {
    const lines = h("pre", { class: "log", tabindex: 0, "aria-label": `Log of ${this.status.name}` });
    const load = async () => {
      const { lines: said } = await get(`${this.at}/logs`);
      fill(lines, said.length ? said.join("\n") : "The log is empty.");
    };
    const details = collapsible("Log", () => {
      const again = actionButton("Reload", this.outcome, load);
      runOnce(again, this.outcome, load);
      return h("div", { class: "stack" }, lines, h("div", { class: "buttons" }, again));
    });
    details.dataset.part = "log";
    return details;
  }

  #buttons() {
    const act = (word) => async () => {
      await post(`${this.at}/${word}`);
      await this.list.refresh();
    };
    const on = this.status.state !== "disabled";
    const away = async () => {
      await remove(this.at);
      await this.list.refresh();
    };
    const { name, from_api } = this.status;
    return h(
      "div",
      { class: "buttons" },
      on && actionButton("Reconnect", this.outcome, act("reconnect")),
      actionButton(on ? "Disable" : "Enable", this.outcome, act(on ? "disable" : "enable")),
      from_api && confirmButton("Remove", `Remove ${name} and its tools?`, "Remove it", this.outcome, away),
    );
  }
}

/** A link to the sign-in page of a server, if it is an http(s) URL; it opens in a new tab. */
function signIn(address) {
  const url = URL.canParse(address) ? new URL(address) : null;
  if (!url || !["http:", "https:"].includes(url.protocol))
    return h("p", { class: "problem" }, "The address of its sign-in page cannot be opened.");
  const link = h(
    "a",
    { href: url.href, target: "_blank", rel: "noopener noreferrer", class: "sign-in-link" },
    `Sign in at ${url.host}`,
  );
  return h(
    "p",
    {},
    link,
    h("span", { class: "faint" }, " It opens in a new tab. Continue only if you trust this host."),
  );
}
