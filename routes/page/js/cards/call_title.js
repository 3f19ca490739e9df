/** A call in one line, for cards, approvals and titles of tabs. */

import { escapeLine } from "../text/exact_text.js";
import { t } from "../dom/texts.js";

const LONGEST = 200;

// tool name -> its title
const TITLES = {
  bash: ({ command }) => (typeof command === "string" ? command.replace(/^\s*#!bg[^\n]*\n/, "") : command),
  python: ({ code }) => code,
  read_file: ({ path, offset }) => (offset > 1 ? t("call.from_line", { path, line: offset }) : path),
  write_file: ({ path }) => path,
  edit_file: ({ path }) => path,
  list_files: ({ path = ".", pattern }) => (pattern ? `${path}, ${pattern}` : path),
  web_fetch: ({ url }) => url,
  web_search: ({ query }) => query,
  recall_history: ({ query }) => query,
  read_result: ({ call }) => call,
  search_tools: ({ query }) => query,
  call_tool: ({ name }) => name,
  job_status: ({ id = "all" }) => id,
  job_output: ({ id }) => id,
  job_cancel: ({ id }) => id,
  update_plan: ({ steps }) => (Array.isArray(steps) ? t("call.steps", { count: steps.length }) : ""),
  submit_plan: ({ steps }) => (Array.isArray(steps) ? steps.join(" · ") : ""),
  ask_user: ({ question }) => question,
  create_document: ({ title }) => title,
  update_document: ({ document }) => document,
  suggest_edits: ({ document }) => document,
  read_document: ({ document = "all" }) => document,
};

const ICONS = {
  read_file: "file",
  write_file: "pencil",
  edit_file: "pencil",
  list_files: "folder",
  web_fetch: "globe",
  web_search: "search",
  recall_history: "search",
  search_tools: "search",
  read_result: "file",
  create_document: "pencil",
  update_document: "pencil",
  suggest_edits: "pencil",
  read_document: "file",
  job_status: "jobs",
  job_output: "jobs",
  job_cancel: "jobs",
};

/** `titleOf("bash", {command: "make test\n..."})` is `make test`. Invisible characters are spelled out. */
export function titleOf(name, given = {}) {
  const words = (Object.hasOwn(TITLES, name) ? TITLES[name](given ?? {}) : undefined) ?? otherArguments(given);
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
  return Object.hasOwn(ICONS, name) ? ICONS[name] : "tool";
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
