/** Describes a call for approval: a question, its exact arguments and its effects; one table row per known tool. */

import { changeDiff } from "../text/diff.js";
import { h } from "../dom/elements.js";
import { exactBlock, escapeLine, escapeText, warnings } from "../text/exact_text.js";
import { titleOf } from "../cards/call_title.js";

const MCP = /^mcp__(.+?)__(.+)$/;

/** `{server, tool}` of `mcp__server__tool`, null for other names. */
export function mcpParts(name) {
  const found = MCP.exec(name);
  return found && { server: found[1], tool: found[2] };
}

const OWN_QUESTION = "ask_user__question"; // of the tool ask_user

/** Whether it is a question that a call asks: an elicitation of an MCP server, or one of the model's. */
export const isQuestion = (name) => name === OWN_QUESTION || mcpParts(name)?.tool === "elicitation";

const inBackground = ({ command, background }) => background === true || /^\s*#!bg\s*(\n|$)/.test(command ?? "");

/** The hosts that a command requests, as text; null if none. Reads `network` as the server does. */
export function requestedHosts({ network }) {
  if (Array.isArray(network)) return network.length ? network.map((host) => escapeLine(String(host))).join(", ") : null;
  return network ? "any public host" : null;
}

const modifiersOf = (given) => {
  const ways = [inBackground(given) && "in the background", requestedHosts(given) && "with network"].filter(Boolean);
  return ways.length ? ` ${ways.join(", ")}` : "";
};

const SENTENCES = {
  __proto__: null,
  bash: (given) => `Run this command${modifiersOf(given)}?`,
  python: (given) => `Run this Python code${modifiersOf(given)}?`,
  write_file: () => "Write this file?",
  edit_file: () => "Change this file?",
  web_fetch: () => "Fetch this web page?",
  web_search: () => "Search the web?",
  job_cancel: () => "Stop this background job?",
  submit_plan: () => "Accept this plan?",
};

/** "Run this command?" */
export function questionOf({ name, arguments: given }) {
  const parts = mcpParts(name);
  if (isQuestion(name)) return `${parts ? escapeLine(parts.server) : "The assistant"} asks you`;
  if (parts) return `Call ${escapeLine(parts.tool)} of the MCP server ${escapeLine(parts.server)}?`;
  return SENTENCES[name]?.(given) ?? `Call ${escapeLine(name)}?`;
}

/** The subject of the call on one line. */
export function summaryOf({ name, arguments: given }) {
  return escapeLine(isQuestion(name) ? String(given.message ?? "") : titleOf(name, given));
}

// The form replaces the instructions for the command line.
const REST = / Approve (with the answers|once you) .*$/;

/** The reason why approval is required. */
export function reasonOf({ name, reason }) {
  return escapeText(isQuestion(name) ? reason.replace(REST, "") : reason);
}

const isText = (value) => typeof value === "string";
const row = (name, value) => [h("dt", {}, escapeLine(name)), h("dd", {}, value)];

// By tool: arguments with a rendering of their own, if they are strings; all others become rows.
const RENDERERS = {
  __proto__: null,
  bash: { command: (given) => [sizedIfLong(given.command), exactBlock(given.command, "Command")] },
  python: { code: (given) => [sizedIfLong(given.code), exactBlock(given.code, "Code")] },
  write_file: { content: (given) => [sized(given.content), exactBlock(given.content, "Content of the file")] },
  edit_file: { old: () => null, new: (given) => changeDiff(escapeText(given.old), escapeText(given.new)) },
};

const LONG_LINES = 8; // from here on some may be scrolled out of view
const linesIn = (text) => (text ? text.replace(/\n$/, "").split("\n").length : 0);

function sized(text) {
  return h("p", { class: "faint" }, `${count(linesIn(text), "line")}, ${count(text.length, "character")}`);
}

const sizedIfLong = (text) => (linesIn(text) >= LONG_LINES ? sized(text) : null);

const count = (number, word) => `${number.toLocaleString()} ${word}${number === 1 ? "" : "s"}`;

/** All arguments of a call, as elements. */
export function renderArguments({ name, arguments: given }) {
  if (name === "submit_plan" && Array.isArray(given.steps)) return planSteps(given.steps);
  const drawn = RENDERERS[name] ?? {};
  const fits = Object.keys(drawn).length > 0 && Object.keys(drawn).every((key) => isText(given[key]));
  const rest = Object.entries(given).filter(([key]) => !fits || !Object.hasOwn(drawn, key));
  const rows = rest.flatMap(([key, value]) => row(key, valueShown(key, value)));
  return [
    rows.length ? h("dl", { class: "approval-arguments" }, rows) : null,
    fits ? Object.values(drawn).map((draw) => draw(given)) : null,
    rest.length || fits ? null : h("p", { class: "faint" }, "No arguments."),
    renderWarnings(given).map((words) => h("p", { class: "approval-warning" }, words)),
  ];
}

const planSteps = (steps) => [
  h(
    "ol",
    { class: "approval-plan" },
    steps.map((step) => h("li", { dir: "auto" }, escapeText(String(step)))),
  ),
  renderWarnings(steps).map((words) => h("p", { class: "approval-warning" }, words)),
];

const SHORT = 80;

function valueShown(name, value) {
  if (!isText(value)) return plainShown(name, JSON.stringify(value, null, 2));
  return value === "" ? h("span", { class: "faint" }, "(empty)") : plainShown(name, value);
}

function plainShown(name, text) {
  if (text.length > SHORT || text.includes("\n")) return exactBlock(text, name);
  return h("code", { dir: "ltr", class: "exact-word" }, escapeText(text));
}

function renderWarnings(given) {
  return warnings(
    Object.values(given)
      .map((value) => (isText(value) ? value : JSON.stringify(value)))
      .join("\n"),
  );
}

const UNSANDBOXED =
  "It runs without a sandbox: it can do everything that the account running dragoman can do on this machine.";
const SANDBOXES = { __proto__: null, bubblewrap: "the sandbox (bubblewrap)", landlock: "the sandbox (Landlock)" };

function sandboxEffect(given, { sandbox, boxed: whole, networked }) {
  const box = SANDBOXES[sandbox];
  if (!box) return UNSANDBOXED;
  const hosts = sandbox === "bubblewrap" ? requestedHosts(given) : null;
  if (hosts)
    return `It runs in ${box} with network access to ${hosts}: everything it can read, including your workspace, can be sent there. It cannot reach services of this machine or its local network.`;
  if (whole) return `It runs in ${box}: it can change your workspace and has no network access.`;
  if (networked)
    return `It runs in ${box} with network access, like every command on this server: everything it can read can be sent to any public host.`;
  return `It runs in ${box}, whose isolation is incomplete on this server: it can access parts of this machine.`;
}

const FILE = ({ path }) => `It changes the file ${escapeLine(String(path))} in your workspace and nothing else.`;

const EFFECTS = {
  __proto__: null,
  bash: sandboxEffect,
  python: sandboxEffect,
  write_file: FILE,
  edit_file: FILE,
  web_fetch: ({ url }) => `${hostOf(url)} receives this request, including everything in its URL.`,
  web_search: () => "The search engine of this server, and those it asks, receive these words.",
  job_cancel: () => "It ends the job and all processes it started.",
  submit_plan: () => "The assistant may use all of its tools in this run, as without a plan.",
};

const RISKS = {
  __proto__: null,
  read: "It only reads.",
  write: "It can write.",
  execute: "It can run commands.",
  network: "It accesses the network beyond this machine.",
  admin: "It can change this server.",
};

function hostOf(url) {
  try {
    return new URL(url).host;
  } catch {
    return "The host";
  }
}

/** The effects of the call, in sentences. `tool`: its row of GET /tools, if it has one. */
export function effectOf({ name, arguments: given }, server, tool) {
  const parts = mcpParts(name);
  if (name === OWN_QUESTION) return "Your answer goes to the model, and stays in this conversation.";
  if (isQuestion(name)) return `Your answer is sent to the MCP server  ${escapeLine(parts.server)}.`;
  const service = `The MCP server ${escapeLine(parts?.server ?? "")} receives these arguments. It does not run in the sandbox.`;
  const words = parts ? service : EFFECTS[name]?.(given, server ?? {});
  return [words, (!EFFECTS[name] && RISKS[tool?.risk]) || null].filter(Boolean).join(" ");
}
