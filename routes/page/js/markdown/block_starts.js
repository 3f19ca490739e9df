/** A row for each kind of block: how it starts, and whether it continues in the next line. */

import { h, icon } from "../dom/elements.js";
import { t } from "../dom/texts.js";
import { unescaped } from "./entities.js";
import { BLOCKS } from "./extensions.js";
import { definitionsOf } from "./link_targets.js";
import { cells } from "./tables.js";

const BULLET = /^[*+-](?=[ \t]|$)/;
const NUMBER = /^(\d{1,9})([.)])(?=[ \t]|$)/;
const RULE = /^(?:(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}|(?:-[ \t]*){3,})$/;
const DASHES = /^\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const BEGINS_OTHER = /^(?:>|#{1,6}[ \t]|[-*+][ \t]|`{3}|~{3})/;
const ALERT = /^> {0,4}\[!(note|tip|important|warning|caution)\](?=\s|$)/i;
const NOTE = /^\[\^([^\s[\]^]{1,80})\]:[ \t]*/;
const DETAILS = /^<details>[ \t]*/i,
  SUMMARY = /^<summary>(.*?)(?:<\/summary>[ \t]*|$)/i,
  END = /^<\/details>[ \t]*$/i;
const LONGEST_TITLE = 120; // characters of a line that dashes below make a heading; below others they are a rule

/** Whether an open block goes on in a line (and takes its mark off it); "end": the line only closes it. */
export const GOES_ON = {
  quote: (line) => {
    if (line.indent > 3 || !line.words.startsWith(">")) return false;
    line.take(1);
    line.skip(1);
    return true;
  },
  list: () => true,
  item: (line, block) => {
    if (line.blank) return Boolean(block.filled);
    // Models indent the content of `1.` by two as often as by three.
    if (line.indent >= 2 && line.indent < block.offset && BULLET.test(line.words) && block.ordered)
      block.offset = line.indent;
    if (line.indent < block.offset) return false;
    line.skip(block.offset);
    return true;
  },
  paragraph: (line) => !line.blank,
  fence: (line, { fence, indent }) => {
    const written = line.words.trimEnd();
    if (line.indent < 4 && written.length >= fence.length && written === fence[0].repeat(written.length)) return "end";
    line.skip(indent);
    return true;
  },
  indented: (line) => {
    if (!line.blank && line.indent < 4) return false;
    line.skip(4);
    return true;
  },
  formula: (line) => !line.blank,
  details: () => true,
  note: (line) => {
    if (line.blank) return true;
    if (line.indent < 4) return false;
    line.skip(4);
    return true;
  },
  table: (line) => line.indent < 4 && line.words.includes("|") && !BEGINS_OTHER.test(line.words),
};

export const NOTHING = { kind: "nothing" };

/** Each answers what begins here, or null: `{kind, container?, instead?, ...}`. `instead`: of the open paragraph. */
export const STARTS = [indented, quote, heading, fence, ...BLOCKS, details, note, table, underlined, rule, item];

function indented(line, { lazy }) {
  if (line.indent < 4) return null;
  if (lazy || line.blank) return NOTHING; // so far to the right, nothing else begins
  line.skip(4);
  return { kind: "code", indent: 0, language: "" };
}

function quote({ words }) {
  const [mark, alert] = ALERT.exec(words) ?? [">"];
  return words.startsWith(">") ? { kind: "quote", container: true, width: mark.length, alert } : null;
}

function heading({ words }) {
  const marks = /^#{1,6}(?=[ \t]|$)/.exec(words)?.[0];
  if (!marks) return null;
  const text = words.slice(marks.length).trim();
  return { kind: "heading", level: marks.length, text: text.replace(/(?:^|(?<![ \t])[ \t]+)#+$/, "") };
}

function fence({ words, indent }) {
  const [, mark, info] = /^(`{3,})([^`]*)$/.exec(words) ?? /^(~{3,})(.*)$/.exec(words) ?? [];
  if (!mark) return null;
  return { kind: "code", fence: mark, indent, language: languageOf(info) };
}

/** `<details>`, its `<summary>` and its end, each at the beginning of a line. */
function details({ words }, { inner, folds }) {
  if (words[0] !== "<") return null;
  const opened = DETAILS.exec(words);
  if (opened) return { kind: "details", container: true, width: opened[0].length };
  if (END.test(words) && folds()) return { kind: "detailsEnd", instead: true };
  const summary = inner.kind === "details" && !inner.filled && SUMMARY.exec(words);
  return summary
    ? { kind: "summary", container: true, text: summary[1].replace(/<\/[a-z]*$/i, ""), width: summary[0].length }
    : null;
}

function languageOf(info) {
  const words = unescaped(info).trim();
  return /^[^\s{},:]*/.exec(words.replace(/^\{\.?/, ""))[0];
}

function note({ words }) {
  const [mark, name] = NOTE.exec(words) ?? [];
  return mark ? { kind: "note", container: true, name, width: mark.length } : null;
}

function table({ words }, { inner }) {
  if (inner.kind !== "paragraph" || !words.includes("|") || !DASHES.test(words)) return null;
  const columns = cells(words),
    head = inner.text.slice(inner.text.lastIndexOf("\n") + 1);
  return head.includes("|") && cells(head).length === columns.length ? { kind: "table", columns, instead: true } : null;
}

function underlined({ words }, { inner }) {
  if (inner.kind !== "paragraph") return null;
  const [, sign] = /^(=|-)\1*[ \t]*$/.exec(words) ?? [];
  const text = sign && definitionsOf(inner.text).rest;
  if (!text) return null;
  if (sign === "=") return { kind: "underlined", level: 1, instead: true, text };
  const title = text.length <= LONGEST_TITLE && !/[\n]|[.:;,!?]\s*$/.test(text);
  return title ? { kind: "underlined", level: 2, instead: true, text } : null;
}

function rule({ words }) {
  return RULE.test(words) ? { kind: "rule" } : null;
}

function item({ words }, { inner }) {
  const bullet = BULLET.exec(words)?.[0],
    [number, from, sign] = (!bullet && NUMBER.exec(words)) || [];
  if (!bullet && !number) return null;
  const empty = words.slice((bullet ?? number).length).trim() === "";
  if (inner.kind === "paragraph" && (empty || (number && from !== "1"))) return null;
  const mark = bullet ?? sign;
  return {
    kind: "item",
    container: true,
    ordered: Boolean(number),
    mark,
    from: Number(from ?? 1),
    width: (bullet ?? number).length,
  };
}

const ALERT_ICONS = { note: "info", tip: "bulb", important: "bell", warning: "warn", caution: "ban" };

/** A quote, or an alert of this name. */
export function quoteElement(alert) {
  if (!alert) return h("blockquote");
  const name = alert.toLowerCase();
  const title = h("p", { class: "alert-title" }, icon(ALERT_ICONS[name]), t(`markdown.alert.${name}`));
  return h("blockquote", { class: `alert alert-${name}`, role: "note" }, title);
}

/** A box of a task list. */
export function taskBox(done) {
  return h("span", {
    class: done ? "task-box done" : "task-box",
    role: "img",
    "aria-label": t(done ? "markdown.task_done" : "markdown.task_open"),
  });
}
