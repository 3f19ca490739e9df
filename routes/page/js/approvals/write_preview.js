/** The change that a waiting write would make: what is there now, and a diff against it. Loaded with the first one. */

import { get } from "../feed/api.js";
import { formatAgo } from "../dom/clock.js";
import { h } from "../dom/elements.js";
import { t } from "../dom/texts.js";
import { unifiedDiff } from "../text/diff.js";
import { escapeLine } from "../text/exact_text.js";

const CUT = /\n\[\.\.\. [\d,]+ more characters of diff \.\.\.\]$/;

/** The server's comparison of a call with the file that is there; null where it cannot be had. */
export async function fetchPreview({ run, call }) {
  try {
    return await get(`/runs/${encodeURIComponent(run)}/approvals/${encodeURIComponent(call)}/preview`);
  } catch (error) {
    if (typeof error.status !== "number") throw error;
    return null; // the question can be answered without it
  }
}

/** "Replace notes.txt?" */
export function headingOf({ change, path }) {
  return t(`approvals.write.${change}`, { path: escapeLine(path) });
}

/** What is there, and the diff; `given` are the elements of the arguments, which are folded behind a diff. */
export function previewElements(preview, given) {
  const { change, note, diff, current } = preview;
  const notes = [
    current ? null : warning(t("approvals.write.changed")),
    note && change === "fail" ? warning(t("approvals.write.fails", { reason: escapeLine(note) })) : null,
  ];
  if (change === "create") return [...notes, h("p", { class: "faint" }, t("approvals.write.new")), given];
  const there = h("p", { class: "faint" }, factsOf(preview), note && change !== "fail" ? ` ${escapeLine(note)}` : null);
  if (diff === null) return [...notes, change === "fail" ? null : there, given];
  const [content, ...unfolded] = [given.slice(0, -2), ...given.slice(-2)]; // origins and warnings
  const cut = CUT.test(diff) ? warning(t("approvals.write.cut")) : null;
  const whole = h("details", { class: "approval-whole" }, h("summary", {}, t("approvals.write.whole")), ...content);
  const folded = change === "edit" && !cut ? null : whole;
  return [...notes, there, unifiedDiff(diff, escapeLine(preview.path)), cut, folded, ...unfolded];
}

const warning = (words) => h("p", { class: "approval-warning" }, words);

/** "There now: 12 lines, changed 5 min. ago." */
function factsOf({ lines, size, modified }) {
  const values = { ago: formatAgo(modified), count: lines ?? size };
  return t(lines === null ? "approvals.write.there_bytes" : "approvals.write.there", values);
}
