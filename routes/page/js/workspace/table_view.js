/** Comma- and tab-separated values as a table: some rows at a time, quoted cells with line ends included. */

import { button, buttonRow, h } from "../dom/elements.js";
import { t } from "../dom/more_texts.js";
import { escapeCode } from "../text/escape_invisible.js";

const ROWS = 200; // at a time
const COLUMNS = 60;
const CELL = 500; // characters of a cell

/** The rows of the text, each a list of cells (RFC 4180), as a generator: a table may be long. */
export function* rowsOf(text, separator) {
  let row = [];
  for (let at = 0; at < text.length; ) {
    const [cell, end] = text[at] === '"' ? quoted(text, at, separator) : plain(text, at, separator);
    row.push(cell);
    if (text[end] === separator) {
      at = end + 1;
      if (at === text.length) row.push("");
      continue;
    }
    yield row;
    row = [];
    at = end + (text.startsWith("\r\n", end) ? 2 : 1);
  }
  if (row.length) yield row;
}

function plain(text, from, separator) {
  let end = from;
  while (end < text.length && text[end] !== separator && text[end] !== "\n" && text[end] !== "\r") end++;
  return [text.slice(from, end), end];
}

function quoted(text, from, separator) {
  let cell = "",
    at = from + 1;
  for (;;) {
    const end = text.indexOf('"', at);
    if (end < 0) return [cell + text.slice(at), text.length];
    cell += text.slice(at, end);
    if (text[end + 1] !== '"') {
      const [rest, next] = plain(text, end + 1, separator);
      return [cell + rest, next];
    }
    cell += '"';
    at = end + 2;
  }
}

/** The separator of a table: a tab by its name, else the most frequent one of its first line. */
export function separatorOf(text, path) {
  if (/\.tsv$/i.test(path)) return "\t";
  const line = text.slice(0, text.search(/[\r\n]|$/));
  const counts = [",", ";", "\t"].map((sign) => [line.split(sign).length, sign]);
  return counts.reduce((best, one) => (one[0] > best[0] ? one : best))[1];
}

/** A table of the text, with its first row as the head. */
export function tableView(text, path) {
  const rows = rowsOf(text, separatorOf(text, path));
  const head = rows.next().value ?? [];
  const body = h("tbody", {});
  const names = head.slice(0, COLUMNS).map((name) => h("th", { scope: "col" }, shown(name)));
  const table = h("table", {}, h("thead", {}, h("tr", {}, names)), body);
  const box = h("div", { class: "table-box", tabindex: 0, role: "group", "aria-label": t("workspace.table") }, table);
  const foot = h("p", { class: "faint", role: "status" });
  const more = button(t("workspace.table.more"), () => add());
  let count = 0;
  const add = () => {
    let done = false;
    for (let at = 0; at < ROWS; at++) {
      const row = rows.next();
      if ((done = Boolean(row.done))) break;
      count++;
      const cells = row.value.slice(0, COLUMNS).map((cell) => h("td", {}, shown(cell)));
      body.append(h("tr", {}, cells));
    }
    more.hidden = done;
    const columns = head.length > COLUMNS ? t("workspace.table.columns", { shown: COLUMNS, all: head.length }) : "";
    foot.textContent = `${t(done ? "workspace.table.rows" : "workspace.table.first", { count })} ${columns}`;
  };
  add();
  return h("div", { class: "table-view" }, box, buttonRow(more), foot);
}

const shown = (cell) => escapeCode(cell.length > CELL ? `${cell.slice(0, CELL)}…` : cell);
