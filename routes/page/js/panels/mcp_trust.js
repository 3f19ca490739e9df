/** The trust in an MCP server and its tools: the values that hold, their sources, and a form to declare others. */

import { post } from "../feed/api.js";
import { announce, buttonRow, h, stack } from "../dom/elements.js";
import { actionButton, collapsible, factList, field, select } from "../dom/forms.js";
import { personOf } from "../cards/call_title.js";
import { escapeLine } from "../text/exact_text.js";
import { language, t, ts } from "../dom/more_texts.js";

const ROLES = ["guest", "user", "admin"];
const RISKS = ["read", "write", "execute", "network", "admin"];
const TRUSTS = { true: "untrusted", false: "trusted" };
const ROLE_LABELS = ts("people.role", ROLES);
const RISK_LABELS = ts("mcp.risk", RISKS);
const RESULTS = ts("mcp.results", Object.values(TRUSTS));
const SOURCES = ts("mcp.source", [
  "settings",
  "declared_tool",
  "declared_server",
  "file_tool",
  "file_server",
  "hint",
  "default",
]);
const HINTS = ts("mcp.hint", ["read_only", "destructive", "open_world"]);

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
    const details = collapsible(titleOf(row), () => new TrustForm(server, row).element, part);
    details.open = open.has(part);
    return details;
  });
}

function titleOf(row) {
  if (!row.tool) return t(row.declared || row.file ? "mcp.trust.server" : "mcp.trust.server.none");
  const now = row.stale ? t("mcp.trust.stale") : inWords(row);
  return [h("span", { class: "mono", dir: "auto" }, escapeLine(row.tool)), h("span", { class: "faint" }, ` ${now}`)];
}

class TrustForm {
  constructor(server, row) {
    Object.assign(this, { server, row });
    const given = row.declared ?? {};
    this.role = choice(ROLE_LABELS, given.role);
    this.risk = choice(RISK_LABELS, given.risk);
    this.results = choice(RESULTS, TRUSTS[given.untrusted]);
    this.element = stack(
      factList([...(row.sources ? this.#values() : []), ...this.#declarations()]),
      !row.stale && [
        field(t("mcp.trust.role.field"), this.role),
        field(t("mcp.trust.risk"), this.risk),
        field(t("mcp.trust.results"), this.results, t("mcp.trust.results.hint")),
      ],
      buttonRow(
        !row.stale && actionButton(t("mcp.trust.declare"), server.outcome, () => this.#declare(), { class: "primary" }),
        row.declared && actionButton(t("mcp.trust.withdraw"), server.outcome, () => this.#withdraw()),
      ),
    );
  }

  #values() {
    const { name, role, risk, untrusted, approval, sources, hints } = this.row;
    const from = (value, field) => `${value} (${SOURCES[sources[field]] ?? sources[field]})`;
    const stated = Object.keys(hints).map((hint) => `${HINTS[hint] ?? hint}: ${t(hints[hint] ? "mcp.yes" : "mcp.no")}`);
    return [
      [t("mcp.name"), escapeLine(name)],
      [t("people.role"), from(ROLE_LABELS[role] ?? role, "role")],
      [t("mcp.trust.risk"), from(RISK_LABELS[risk] ?? risk, "risk")],
      [t("mcp.trust.results"), from(RESULTS[TRUSTS[untrusted]], "untrusted")],
      [t("mcp.trust.approval"), approval === "mode" ? null : from(approval, "approval")],
      [t("mcp.trust.hints"), stated.join(", ")],
    ];
  }

  #declarations() {
    const { declared, file } = this.row;
    return [
      [t("mcp.trust.file"), file && inWords(file)],
      [
        t("mcp.trust.by"),
        declared?.by && `${personOf(declared.by)}, ${new Date(declared.at * 1000).toLocaleString(language)}`,
      ],
    ];
  }

  async #declare() {
    const { value } = this.results;
    const fields = {
      tool: this.row.tool,
      role: this.role.value || null,
      risk: this.risk.value || null,
      untrusted: value ? value === "untrusted" : null,
      arguments: this.row.declared?.arguments ?? null, // declared on the command line: kept
    };
    await post(`${this.server.at}/trust`, fields);
    await this.#done("mcp.trust.declared");
  }

  async #withdraw() {
    await post(`${this.server.at}/distrust`, { tool: this.row.tool });
    await this.#done("mcp.trust.withdrawn");
  }

  async #done(key) {
    announce(t(key, { name: escapeLine(this.row.tool) || t("mcp.trust.whole") }));
    await this.server.list.refresh();
  }
}

function choice(labels, chosen) {
  return select([["", t("mcp.trust.undeclared")], ...Object.entries(labels)], { value: chosen ?? "" });
}

function inWords({ role, risk, untrusted, arguments: columns }) {
  const parts = [
    role && t("mcp.trust.is.role", { role: ROLE_LABELS[role] ?? role }),
    risk && t("mcp.trust.is.risk", { risk: RISK_LABELS[risk] ?? risk }),
    untrusted === null ? null : t("mcp.trust.is.results", { results: RESULTS[TRUSTS[untrusted]] }),
    ...Object.entries(columns ?? {}).map((named) => escapeLine(named.join("=")).slice(0, 80)),
  ];
  return parts.filter(Boolean).join(", ") || RESULTS.trusted;
}
