/** Describes a call for approval: a question, its exact arguments and its effects; one table row per known tool. */

import { changeDiff } from "../text/diff.js";
import { h } from "../dom/elements.js";
import { exactBlock, escapeLine, escapeText, warnings } from "../text/exact_text.js";
import { inWords, requestedHosts, titleOf } from "../cards/call_title.js";
import { t, ts } from "../dom/texts.js";

const MCP = /^mcp__(.+?)__(.+)$/;

/** `{server, tool}` of `mcp__server__tool`, null for other names. */
function mcpParts(name) {
  const found = MCP.exec(name);
  return found && { server: found[1], tool: found[2] };
}

const OWN_QUESTION = "ask_user__question"; // of the tool ask_user

/** Whether it is a question that a call asks: an elicitation of an MCP server, or one of the model's. */
export const isQuestion = (name) => name === OWN_QUESTION || mcpParts(name)?.tool === "elicitation";

const inBackground = ({ command, background }) => background === true || /^\s*#!?bg\s*(\n|$)/.test(command ?? "");

const COMMANDS = new Set(["bash", "python"]);
const OTHERS = ["write_file", "edit_file", "web_fetch", "web_search", "job_cancel", "submit_plan", "manage_schedules"];
const SENTENCES = { __proto__: null, ...ts("approvals.ask", OTHERS) };

/** "Run this command in the background?" */
function commandQuestion(name, given) {
  const network = Boolean(requestedHosts(given));
  if (inBackground(given)) return t(`approvals.ask.${name}.${network ? "background_network" : "background"}`);
  return t(`approvals.ask.${name}.${network ? "network" : "plain"}`);
}

/** "Run this command?" */
export function questionOf({ name, arguments: given }) {
  const parts = mcpParts(name);
  if (isQuestion(name))
    return parts ? t("approvals.asks", { name: escapeLine(parts.server) }) : t("approvals.asks.model");
  if (parts) return t("approvals.call.mcp", { tool: escapeLine(parts.tool), server: escapeLine(parts.server) });
  if (COMMANDS.has(name)) return commandQuestion(name, given);
  return SENTENCES[name] ?? t("approvals.call", { name: escapeLine(name) });
}

/** The subject of the call on one line. */
export function summaryOf({ name, arguments: given }) {
  return escapeLine(isQuestion(name) ? String(given.message ?? "") : titleOf(name, given));
}

// The form replaces the instructions for the command line.
const REST = / Approve (with the answers|once you) .*$/;

// Sentences of the server for any client, and those for people.
const ASKS_FIRST = /This run asks first \(approval: ask\)\./;
const NETWORK = /It would run with network \(([^)]*)\), and could send them what the sandbox can read\./;

/** The reason why approval is required. */
export function reasonOf({ name, reason }) {
  if (isQuestion(name)) return escapeText(reason.replace(REST, ""));
  const network = (_, hosts) =>
    t("approvals.reason.network", { hosts: hosts === "any public host" ? t("approvals.any_host") : hosts });
  return escapeText(reason.replace(ASKS_FIRST, t("approvals.reason.ask")).replace(NETWORK, network));
}

const isText = (value) => typeof value === "string";
const row = (name, value) => [h("dt", {}, escapeLine(name)), h("dd", {}, value)];

// By tool: arguments with a rendering of their own, if they are strings; all others become rows.
const RENDERERS = {
  __proto__: null,
  bash: { command: ({ command }, origins) => [sizedIfLong(command), exact("command", command, origins)] },
  python: { code: ({ code }, origins) => [sizedIfLong(code), exact("code", code, origins)] },
  write_file: { content: ({ content }, origins) => [sized(content), exact("content", content, origins)] },
  edit_file: { old: () => null, new: (given) => changeDiff(escapeText(given.old), escapeText(given.new)) },
};

const exact = (name, text, origins) => exactBlock(text, t(`approvals.${name}`), origins?.drawing(name, text));

const LONG_LINES = 8; // from here on some may be scrolled out of view
const linesIn = (text) => (text ? text.replace(/\n$/, "").split("\n").length : 0);

function sized(text) {
  const lines = t("approvals.lines", { count: linesIn(text) });
  return h("p", { class: "faint" }, `${lines}, ${t("approvals.characters", { count: text.length })}`);
}

const sizedIfLong = (text) => (linesIn(text) >= LONG_LINES ? sized(text) : null);

/** All arguments of a call, as elements; `origins` (Origins) says where they come from. */
export function renderArguments({ name, arguments: given }, origins = null) {
  if (name === "submit_plan" && Array.isArray(given.steps)) return planSteps(given.steps);
  const drawn = RENDERERS[name] ?? {};
  const fits = Object.keys(drawn).length > 0 && Object.keys(drawn).every((key) => isText(given[key]));
  const shown = COMMANDS.has(name) ? inWords(given) : given;
  const rest = Object.entries(shown).filter(([key]) => !fits || !Object.hasOwn(drawn, key));
  const rows = rest.flatMap(([key, value]) => row(key, valueShown(key, value, origins)));
  return [
    fits ? Object.values(drawn).map((draw) => draw(given, origins)) : null,
    rows.length ? h("dl", { class: "approval-arguments" }, rows) : null,
    rest.length || fits ? null : h("p", { class: "faint" }, t("approvals.arguments.none")),
    origins?.list() ?? null,
    renderWarnings(given),
  ];
}

function planSteps(steps) {
  const rows = steps.map((step) => h("li", { dir: "auto" }, escapeText(String(step))));
  return [h("ol", { class: "approval-plan" }, rows), renderWarnings(steps)];
}

const SHORT = 80;

function valueShown(name, value, origins) {
  const text = isText(value) ? value : JSON.stringify(value, null, 2);
  if (text === "") return h("span", { class: "faint" }, t("approvals.empty"));
  const draw = origins?.drawing(name, text);
  if (text.length > SHORT || text.includes("\n")) return exactBlock(text, name, draw);
  return h("code", { dir: "ltr", class: "exact-word" }, draw ? draw(0, text.length) : escapeText(text));
}

function renderWarnings(given) {
  const texts = Object.values(given).map((value) => (isText(value) ? value : JSON.stringify(value)));
  return warnings(texts.join("\n")).map((words) => h("p", { class: "approval-warning" }, words));
}

const SANDBOXES = { __proto__: null, bubblewrap: "bubblewrap", landlock: "Landlock" };

/** Whether a command would run where no sandbox, or not a whole one, keeps it from this machine. */
export const isUnboxed = ({ name }, { sandbox, boxed }) =>
  COMMANDS.has(name) && !(Object.hasOwn(SANDBOXES, sandbox) && boxed);

function sandboxEffect(given, { sandbox, boxed: whole, networked }) {
  const box = SANDBOXES[sandbox];
  if (!box) return t("approvals.effect.unsandboxed");
  const hosts = sandbox === "bubblewrap" ? requestedHosts(given) : null;
  if (hosts) return t("approvals.effect.hosts", { box, hosts });
  if (whole) return t("approvals.effect.boxed", { box });
  if (networked) return t("approvals.effect.networked", { box });
  return t("approvals.effect.incomplete", { box });
}

const FILE = ({ path }) => t("approvals.effect.file", { path: escapeLine(String(path)) });

const EFFECTS = {
  __proto__: null,
  bash: sandboxEffect,
  python: sandboxEffect,
  write_file: FILE,
  edit_file: FILE,
  web_fetch: ({ url }) => t("approvals.effect.fetch", { host: hostOf(url) }),
  web_search: () => t("approvals.effect.search"),
  job_cancel: () => t("approvals.effect.job"),
  submit_plan: () => t("approvals.effect.plan"),
};

const RISKS = { __proto__: null, ...ts("approvals.risk", ["read", "write", "execute", "network", "admin"]) };

function hostOf(url) {
  try {
    return new URL(url).host;
  } catch {
    return t("approvals.effect.host");
  }
}

/** The effects of the call, in sentences. `tool`: its row of GET /tools, if it has one. */
export function effectOf({ name, arguments: given }, server, tool) {
  const parts = mcpParts(name);
  if (name === OWN_QUESTION) return t("approvals.effect.answer");
  if (isQuestion(name)) return t("approvals.effect.answer.mcp", { server: escapeLine(parts.server) });
  const service = t("approvals.effect.mcp", { server: escapeLine(parts?.server ?? "") });
  const words = parts ? service : EFFECTS[name]?.(given, server ?? {});
  return [words, (!EFFECTS[name] && RISKS[tool?.risk]) || null].filter(Boolean).join(" ");
}
