/** The trust in an MCP server and its tools: the values that hold, their sources, and a form to declare others. */

import { post } from "../feed/api.js";
import { h, announce } from "../dom/elements.js";
import { actionButton, collapsible, factList, field } from "../dom/forms.js";
import { escapeLine } from "../text/exact_text.js";

const ROLES = ["guest", "user", "admin"];
const RISKS = ["read", "write", "execute", "network", "admin"];
const RESULTS = { true: "untrusted", false: "trusted" };
const SOURCES = {
  settings: "the setting tools",
  declared_tool: "declared for this tool",
  declared_server: "declared for the server",
  file_tool: "mcp.json, for this tool",
  file_server: "mcp.json, for the server",
  hint: "a hint of the server",
  default: "default",
};
const HINTS = { read_only: "reads only", destructive: "destroys", open_world: "reaches the outside" };

/** A section for the server, and one for each tool. `server`: a Server of mcp_server.js; `open`: parts to open. */
export function trustRows(server, open) {
  const { trust, classified } = server.status;
  const stale = trust.stale.map((tool) => ({
    tool,
    declared: { role: null, risk: null, untrusted: null },
    stale: true,
  }));
  const whole = { tool: "", declared: trust.declared, file: trust.file };
  return [whole, ...classified, ...stale].map((row) => {
    const part = `trust ${row.tool}`;
    const details = collapsible(titleOf(row), () => new TrustForm(server, row).element);
    Object.assign(details.dataset, { part });
    details.open = open.has(part);
    return details;
  });
}

function titleOf(row) {
  if (!row.tool) return `The whole server: ${row.declared || row.file ? "trusted" : "not trusted"}`;
  const now = row.stale ? "not listed now" : `role ${row.role}, risk ${row.risk}, results ${RESULTS[row.untrusted]}`;
  return [h("span", { class: "mono", dir: "auto" }, escapeLine(row.tool)), h("span", { class: "faint" }, ` ${now}`)];
}

class TrustForm {
  constructor(server, row) {
    Object.assign(this, { server, row });
    const given = row.declared ?? {};
    this.role = choice(ROLES, given.role);
    this.risk = choice(RISKS, given.risk);
    this.results = choice(["trusted", "untrusted"], RESULTS[given.untrusted]);
    this.element = h(
      "div",
      { class: "stack" },
      factList([...(row.sources ? this.#values() : []), ...this.#declarations()]),
      !row.stale && [
        field("Role that may use it", this.role),
        field("Risk", this.risk),
        field("Its results", this.results, "Untrusted results make later calls that leave the sandbox ask again."),
      ],
      h(
        "div",
        { class: "buttons" },
        !row.stale && actionButton("Declare", server.outcome, () => this.#declare(), { class: "primary" }),
        row.declared && actionButton("Withdraw", server.outcome, () => this.#withdraw()),
      ),
    );
  }

  #values() {
    const { name, role, risk, untrusted, approval, sources, hints } = this.row;
    const from = (value, field) => `${value} (${SOURCES[sources[field]] ?? sources[field]})`;
    const stated = Object.keys(hints).map((hint) => `${HINTS[hint] ?? hint}: ${hints[hint] ? "yes" : "no"}`);
    return [
      ["Name", escapeLine(name)],
      ["Role", from(role, "role")],
      ["Risk", from(risk, "risk")],
      ["Results", from(RESULTS[untrusted], "untrusted")],
      ["Approval", approval === "mode" ? null : from(approval, "approval")],
      ["Hints", stated.join(", ")],
    ];
  }

  #declarations() {
    const { declared, file } = this.row;
    return [
      ["In mcp.json", file && inWords(file)],
      ["Declared by", declared?.by && `${declared.by}, ${new Date(declared.at * 1000).toLocaleString()}`],
    ];
  }

  async #declare() {
    const { value } = this.results;
    const fields = {
      tool: this.row.tool,
      role: this.role.value || null,
      risk: this.risk.value || null,
      untrusted: value ? value === "untrusted" : null,
    };
    await post(`${this.server.at}/trust`, fields);
    await this.#done("Declared");
  }

  async #withdraw() {
    await post(`${this.server.at}/distrust`, { tool: this.row.tool });
    await this.#done("Withdrawn");
  }

  async #done(word) {
    announce(`${word}: ${escapeLine(this.row.tool) || "the whole server"}`);
    await this.server.list.refresh();
  }
}

function choice(values, chosen) {
  const options = values.map((value) => h("option", { value }, value));
  return h("select", { value: chosen ?? "" }, h("option", { value: "" }, "not declared"), options);
}

function inWords({ role, risk, untrusted }) {
  const results = untrusted === null ? null : `results ${RESULTS[untrusted]}`;
  return [role && `role ${role}`, risk && `risk ${risk}`, results].filter(Boolean).join(", ") || "trusted";
}
