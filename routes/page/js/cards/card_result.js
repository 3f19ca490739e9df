/** The result of a tool: output, diff, file or untrusted text; and a preview of a few lines. */

import { codeBlock } from "../text/code.js";
import { diffOf, rowOf } from "../text/diff.js";
import { counted, rowsOfUnified } from "../text/diff_rows.js";
import { h } from "../dom/elements.js";
import { pieces, t } from "../dom/texts.js";
import { escapeText } from "../text/exact_text.js";
import { fileLanguage } from "../text/file_language.js";
import { parseJSON } from "../text/json.js";
import { countWords, linesSeen } from "../terminal/excerpts.js";
import { Tail } from "../terminal/output_tail.js";
import { nameOf } from "./call_title.js";
import { foundPassages, passageList } from "../text/found_passages.js";
import { countOf, resultList, searchResults } from "./search_results.js";

const BRIEF = 3; // lines
const BRIEF_PART = 4_000; // characters of a text that are searched for them
const LINE = 240;
const JSON_MOST = 200_000;
const EXIT =
  /\n\[(?:exit code \d+(?:, (?<signal>\w+))?|stopped after (?<limit>.+ s), the time limit|stopped by the person after [^\n]*)\]$/;
const PAGE_NOTE = /\n?\[(?<note>(?:Lines \d+ to|Only the first|Characters \d+ to)[^\n]*)\]$/;

const STOPPED = /^This call was stopped before it finished; what it had done by then is unknown\.(?: It had printed:)?/;

/** The text of a result or refusal for people: without its end that advises the model. */
export function forPeople(text, advice) {
  const end = advice && text.endsWith(advice) ? advice.length : 0;
  const shown = text.slice(0, text.length - end) + (end && /^[:;]/.test(advice) ? "." : "");
  return shown.replace(STOPPED, () => t("card.stopped"));
}

const NOTE_MOST = 300; // length of such a trailer

/** The trailer that a tool has appended to its result, and its groups; [] if there is none. */
function trailer(pattern, text) {
  const found = pattern.exec(text.slice(-NOTE_MOST)); // bounded: the text can be long and hostile
  return found ? [found[0], found.groups] : [];
}

/**
 * `{element, brief, extra}` of a finished call: the content of the expanded card, of the collapsed card, and of
 * its header. `call`: `{name, fields, text, ok, tail, label, whole}`; elements are built on demand.
 */
export function resultOf(call) {
  if (call.isProcess) return ofProcess(call);
  if (!call.ok) return { element: () => failure(call.text), brief: () => null };
  if (Object.hasOwn(RESULTS, call.name)) return RESULTS[call.name](call);
  return ofText(call, call.name.startsWith("mcp__") ? nameOf(call.name) : null);
}

const RESULTS = {
  read_file: ofFile,
  write_file: ofChange,
  edit_file: ofChange,
  web_fetch: (call) => ofText(call, String(call.fields.url ?? t("card.web"))),
  web_search: ofSearch,
  search_files: ofPassages,
};

function ofProcess({ text, tail, exitCode, lines }) {
  const [end = "", { signal, limit } = {}] = trailer(EXIT, text);
  const note = t("card.stopped");
  const stopped = text.startsWith(note);
  const output = text.slice(stopped ? note.length + 1 : 0, text.length - end.length);
  const why = [
    !exitCode ? null : t("card.exit", { code: String(exitCode) }),
    signal,
    limit && t("card.limit", { limit }),
  ];
  const count = lines && h("p", { class: "tail-count" }, countWords(lines, linesSeen(output)));
  return {
    element: () => {
      tail.end(output === "(no output)" ? "" : output, lines);
      if (stopped) return h("p", { class: "card-note" }, note);
      return output === "(no output)" ? h("p", { class: "card-note" }, t("job.silent")) : null;
    },
    brief: () => (output === "(no output)" ? null : [lastLines(output), count]),
    extra: why.filter(Boolean).join(", "),
  };
}

function ofChange({ text, fields }) {
  const [first, ...rest] = text.split("\n");
  const rows = rowsOfUnified(rest.join("\n"));
  const { added, removed } = counted(rows);
  const changes = rows.filter(({ kind }) => kind === "added" || kind === "removed");
  const note = (text) => h("p", { class: "card-note" }, escapeText(text));
  if (!changes.length) {
    const element = () => [note(first), rows.map(({ text }) => note(text))];
    return { element, brief: () => h("p", {}, escapeText(first)), extra: "", replacesArguments: false };
  }
  return {
    element: () => [note(first), diffOf(rows, String(fields.path))],
    brief: () => [
      h("div", { class: "diff" }, changes.slice(0, BRIEF).map(rowOf)),
      changes.length > BRIEF && t("card.more_changes", { count: changes.length - BRIEF }),
    ],
    extra: `+${added} −${removed}`,
    replacesArguments: true,
  };
}

function ofFile({ text, fields }) {
  const [end = "", { note } = {}] = trailer(PAGE_NOTE, text);
  const code = text.slice(0, text.length - end.length);
  const lines = code.replace(/\n$/, "").split("\n").length;
  return {
    element: () => [codeBlock(code, fileLanguage(fields.path)), note ? h("p", { class: "card-note" }, note) : null],
    brief: () => null,
    extra: t("tail.lines", { count: lines }),
  };
}

function ofSearch(call) {
  const results = searchResults(call.text);
  if (!results) return ofText(call, t("card.web")); // of an MCP server, or cut
  const extra = countOf(results);
  if (!results.length) return { ...ofText(call, t("card.web")), extra };
  const titles = results.slice(0, BRIEF).map(({ title, url }) => `${title} (${url.host})`);
  return { element: () => [untrusted(t("card.web")), resultList(results)], brief: () => brief(titles), extra };
}

function ofPassages(call) {
  const found = foundPassages(call.text);
  const places = found.slice(0, BRIEF).map(({ place }) => place);
  return { element: () => passageList(found), brief: () => brief(places), extra: countOf(found) };
}

const untrusted = (source) =>
  h("p", { class: "card-untrusted" }, pieces("card.untrusted", { source: h("bdi", {}, escapeText(source)) }));

/** `stranger`: the source of text from outside this machine. */
function ofText({ text, label, whole, fileName }, stranger = null) {
  const json = prettyJSON(text);
  const warning = stranger && untrusted(stranger);
  return {
    element: () => [warning, json ? codeBlock(json, "json") : words(text, { label, whole, fileName })],
    brief: () => firstLines(text),
  };
}

function words(text, { label, whole, fileName }) {
  const tail = new Tail({ label, whole, name: fileName, prose: true });
  tail.end(text);
  return tail.element;
}

/** Of a long error the end is shown: programs put the message there. */
function failure(text) {
  return h("div", { class: "card-problem", dir: "auto" }, escapeText(text));
}

function prettyJSON(text) {
  if (text.length > JSON_MOST || !/^\s*[[{]/.test(text)) return null;
  try {
    return JSON.stringify(parseJSON(text), null, 2);
  } catch {
    return null;
  }
}

function firstLines(text) {
  const lines = text.slice(0, BRIEF_PART).split("\n");
  return brief(lines.filter((line) => line.trim()).slice(0, BRIEF));
}

const lastLines = (text) => brief(text.slice(-BRIEF_PART).trimEnd().split("\n").slice(-BRIEF));

function brief(lines) {
  const shown = lines.map((line) => h("div", {}, withoutEscapes(line)));
  return h("div", { class: "brief-lines" }, shown);
}

/** A line of output without escape sequences. */
function withoutEscapes(line) {
  const shown = line.replace(/\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|.)/g, "");
  return escapeText(shown.replace(/\r+$/, "").split("\r").at(-1).slice(0, LINE));
}
