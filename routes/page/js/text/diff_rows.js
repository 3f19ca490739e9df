/** Diffs as data: rows `{kind, old, now, text}` with `kind` one of `same`, `removed`, `added`, `hunk`, `note`. */
import { t } from "../dom/texts.js";

const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)$/;
const KINDS = { "+": "added", "-": "removed", " ": "same" };
const MOST_EDITS = 200; // beyond that the middle is shown as replaced
const CONTEXT = 3;

/** The rows of a unified diff; what stands before and behind it are notes. */
export function rowsOfUnified(text) {
  const rows = [];
  let old = 0;
  let now = 0;
  let inside = false;
  for (const line of text.split("\n")) {
    const hunk = HUNK.exec(line);
    if (hunk) {
      [old, now, inside] = [Number(hunk[1]), Number(hunk[2]), true];
      rows.push({ kind: "hunk", text: `${t("diff.hunk", { line: String(now) })}${hunk[3]}` });
    } else if (!inside) {
      if (line && !/^(---|\+\+\+)( |$)/.test(line)) rows.push({ kind: "note", text: line });
    } else if (!Object.hasOwn(KINDS, line[0] ?? " ") || line === "") {
      if (line) rows.push({ kind: "note", text: line });
    } else {
      const kind = KINDS[line[0]];
      const numbers = { old: kind === "added" ? null : old++, now: kind === "removed" ? null : now++ };
      rows.push({ kind, ...numbers, text: line.slice(1) });
    }
  }
  return rows;
}

/** What would change if `before` became `after`; of what stays the same only the lines next to a change. */
export function rowsOfChange(before, after) {
  const [old, now] = [linesIn(before), linesIn(after)];
  let start = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) start++;
  let end = 0;
  while (end < old.length - start && end < now.length - start && old.at(-1 - end) === now.at(-1 - end)) end++;
  const edits = shortest(old.slice(start, old.length - end), now.slice(start, now.length - end));
  const rows = [
    ...old.slice(Math.max(0, start - CONTEXT), start).map((text) => ["same", text]),
    ...edits,
    ...old.slice(old.length - end, old.length - end + CONTEXT).map((text) => ["same", text]),
  ];
  let [left, right] = [Math.max(0, start - CONTEXT) + 1, Math.max(0, start - CONTEXT) + 1];
  return rows.map(([kind, text]) => {
    return { kind, old: kind === "added" ? null : left++, now: kind === "removed" ? null : right++, text };
  });
}

/** `{added, removed}` lines. */
export function counted(rows) {
  const count = (kind) => rows.filter((row) => row.kind === kind).length;
  return { added: count("added"), removed: count("removed") };
}

const linesIn = (text) => (text ? text.replace(/\n$/, "").split("\n") : []);

/** Myers' shortest edit, up to so many edits that it stays quick; else all of it gone, and all of it new. */
function shortest(old, now) {
  const replaced = () => [...old.map((text) => ["removed", text]), ...now.map((text) => ["added", text])];
  if (!old.length || !now.length) return replaced();
  const trace = forward(old, now);
  return trace ? backward(old, now, trace) : replaced();
}

/** For each number of edits, how far each diagonal reaches. */
function forward(old, now) {
  const most = Math.min(old.length + now.length, MOST_EDITS);
  let reach = new Map([[1, 0]]);
  const trace = [];
  for (let edits = 0; edits <= most; edits++) {
    trace.push(reach);
    const next = new Map(reach);
    for (let k = -edits; k <= edits; k += 2) {
      let x = down(reach, k, edits) ? reach.get(k + 1) : reach.get(k - 1) + 1;
      while (x < old.length && x - k < now.length && old[x] === now[x - k]) x++;
      next.set(k, x);
      if (x >= old.length && x - k >= now.length) return trace;
    }
    reach = next;
  }
  return null;
}

const down = (reach, k, edits) => k === -edits || (k !== edits && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));

function backward(old, now, trace) {
  const rows = [];
  let [x, y] = [old.length, now.length];
  for (let edits = trace.length - 1; edits >= 0; edits--) {
    const reach = trace[edits];
    const k = x - y;
    const before = down(reach, k, edits) ? k + 1 : k - 1;
    const fromX = reach.get(before) ?? 0;
    const fromY = fromX - before;
    while (x > fromX && y > fromY && x > 0 && y > 0) rows.push(["same", old[--x]]) && y--;
    if (edits === 0) break;
    if (x === fromX) rows.push(["added", now[--y]]);
    else rows.push(["removed", old[--x]]);
  }
  return rows.reverse();
}
