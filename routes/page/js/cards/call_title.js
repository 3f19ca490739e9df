/** A call in one line, for cards, approvals and titles of tabs. */

import { escapeLine } from "../text/exact_text.js";
import { t } from "../dom/texts.js";

const LONGEST = 200;

// tool name -> its title, or the argument that is its title; and its icon, if it has one of its own
const TOOLS = {
  bash: [({ command }) => (typeof command === "string" ? command.replace(/^\s*#!?bg[ \t]*\n/, "") : command)],
  python: ["code"],
  read_file: [({ path, offset }) => (offset > 1 ? t("call.from_line", { path, line: offset }) : path), "file"],
  write_file: ["path", "pencil"],
  edit_file: ["path", "pencil"],
  list_files: [({ path = ".", pattern }) => (pattern ? `${path}, ${pattern}` : path), "folder"],
  web_fetch: ["url", "globe"],
  web_search: ["query", "search"],
  search_files: ["query", "search"],
  recall_history: ["query", "search"],
  read_result: ["call", "file"],
  search_tools: ["query", "search"],
  call_tool: ["name"],
  job_status: [({ id = "all" }) => id, "jobs"],
  job_output: ["id", "jobs"],
  job_cancel: ["id", "jobs"],
  update_plan: [({ steps }) => (Array.isArray(steps) ? t("call.steps", { count: steps.length }) : "")],
  submit_plan: [({ steps }) => (Array.isArray(steps) ? steps.join(" · ") : "")],
  ask_user: ["question"],
  create_document: ["title", "pencil"],
  update_document: ["document", "pencil"],
  suggest_edits: ["document", "pencil"],
  manage_schedules: [({ action, name, schedule }) => [action, name ?? schedule].filter(Boolean).join(" "), "clock"],
  read_document: [({ document = "all" }) => document, "file"],
};

const rowOf = (name) => (Object.hasOwn(TOOLS, name) ? TOOLS[name] : []);

/** `titleOf("bash", {command: "make test\n..."})` is `make test`. Invisible characters are spelled out. */
export function titleOf(name, given = {}) {
  const [title] = rowOf(name);
  const own = typeof title === "string" ? given?.[title] : title?.(given ?? {});
  const words = own ?? otherArguments(given);
  const first = firstLine(typeof words === "string" ? words : JSON.stringify(words));
  return escapeLine(first.length > LONGEST ? `${first.slice(0, LONGEST)}…` : first);
}

/** `server · tool` for tools of MCP servers, the name itself for others. */
export function nameOf(name) {
  const [, server, tool] = /^mcp__(.+?)__(.+)$/s.exec(name) ?? [];
  return escapeLine(server ? `${server} · ${tool}` : name).slice(0, LONGEST);
}

/** The icon of a tool, for `icon()`. */
export function iconOf(name) {
  if (name.startsWith("mcp__")) return "plug";
  return rowOf(name)[1] ?? "tool";
}

/** The hosts that a command requests, as text; null if none. Reads `network` as the server does. */
export function requestedHosts({ network }) {
  if (Array.isArray(network)) return network.length ? network.map((host) => escapeLine(String(host))).join(", ") : null;
  return network ? t("approvals.any_host") : null;
}

/** The arguments of a command, with words for a network that is not limited; hosts are shown as they are. */
export const inWords = ({ network, ...rest }) =>
  network === true
    ? { ...rest, [t("card.field.network")]: t("approvals.any_host") }
    : { ...rest, ...(network && { network }) };

const DOORS = new Set(["page", "push", "terminal", "acp", "api", "responses", "ag-ui", "ui-messages", "mcp", "link"]);

const own = new Set(["local"]); // names of the reader; "local" is the only account of a server without tokens

/** Names the reader, whose decisions are "by you". */
export const nameReader = ({ name }) => own.add(name);

export const personOf = (by) => (own.has(by) ? t("by.you") : escapeLine(by ?? ""));

/** The person who has decided a call, and the door: `ann in the terminal`; `you` need not read that it was this page. */
export function deciderOf(by, door) {
  const person = personOf(by);
  return DOORS.has(door) && !(own.has(by) && door === "page") ? `${person} ${t(`approvals.door.${door}`)}` : person;
}

function firstLine(text) {
  return (/[^\s][^\n]*/.exec(text.slice(0, 4_000))?.[0] ?? "").trim();
}

/** The only value, or all values, of a tool without a title of its own. */
function otherArguments(given) {
  const values = Object.values(given ?? {});
  if (!values.length) return "";
  return values.length === 1 && typeof values[0] === "string" ? values[0] : JSON.stringify(given);
}
