/** A branch and the conversation that it has come from, beside each other, from the event on at which they part. */

import { button, dialog, dialogButtons, fill, h } from "../../dom/elements.js";
import { problemLine } from "../../dom/forms.js";
import { styleAt } from "../../dom/library.js";
import { t } from "../../dom/more_texts.js";
import { quiet } from "../helper_view.js";
import { fetchLog, replay } from "../run_log.js";

const RUNS = 100;
const DELTA = /\.delta$/;
const APART = new Set(["usage", "tool.progress", "tool.task", "notice", "run.started"]); // by chance
const OPENS = new Set(["approval.required", "tool.started"]);

await styleAt("css/later/replay.css").catch(() => undefined);

/** `original` and `own`: `{run, session}` of the turn at which they part. */
export function openParted(page, original, own) {
  const place = h("div", { class: "compare" }, t("loading.short"));
  const shown = dialog(t("branch.parted"), (close) => [
    place,
    dialogButtons(button(t("dialog.close"), () => close(), { autofocus: true })),
  ]);
  place.closest("dialog").classList.add("dialog-wide");
  show(page, place, [original, own]).catch((error) => {
    if (typeof error.status !== "number") throw error;
    fill(place, problemLine(error));
  });
  return shown;
}

async function show(page, place, sides) {
  const logs = await Promise.all(sides.map(({ session }) => fetchLog(session, { runs: RUNS })));
  const from = logs.map(({ runs }, side) => runs.findIndex(({ run }) => run === sides[side].run));
  if (from.includes(-1)) return fill(place, h("p", {}, t("parted.far")));
  const turns = logs.map(({ runs }, side) => runs.slice(from[side]));
  const cuts = parting(...turns.map(([first]) => first));
  const names = [t("parted.original"), t("parted.own")];
  const columns = turns.map((runs, side) => column(page, runs, cuts[side], names[side]));
  const buttons = names.map((name, side) => button(name, () => choose(side)));
  const choose = (chosen) => {
    columns.forEach(({ element }, side) => element.classList.toggle("parted-chosen", side === chosen));
    buttons.forEach((one, side) => one.setAttribute("aria-pressed", String(side === chosen)));
  };
  choose(1);
  const about = t(cuts[0] ? "parted.about" : "parted.whole", { event: cuts[0] + 1 });
  const columnsRow = h(
    "div",
    { class: "compare-columns" },
    columns.map(({ element }) => element),
  );
  fill(place, h("p", { class: "faint" }, about), h("div", { class: "buttons parted-switch" }, buttons), columnsRow);
  for (const { draw } of columns) await draw(() => place.isConnected);
}

/** A run of which the beginning is left out has no message. */
function column(page, runs, cut, name) {
  const RunView = page.conversation.latest.constructor;
  const apart = quiet(page, { readOnly: true, isPast: true });
  const drawn = runs.map(({ events, ...asked }, at) => {
    const from = at ? 0 : cut;
    const view = new RunView(from ? { ...asked, message: null } : asked, apart);
    return { view, events: events.filter(({ seq }) => seq > from) };
  });
  const heading = h("h3", { dir: "auto" }, `${name} · ${runs[0].model}`);
  const body = h(
    "div",
    { class: "parted-body", tabindex: 0, role: "group", "aria-label": name },
    drawn.map(({ view }) => view.element),
  );
  const draw = async (wanted) => {
    for (const { view, events } of drawn) await replay(view, events, wanted);
  };
  return { element: h("article", { class: "parted-column", "aria-label": name }, heading, body), draw };
}

/** The numbers of the last events that both runs have, one for each; a call that has no result yet is not among them. */
function parting(one, other) {
  if (one.message?.text !== other.message?.text) return [0, 0];
  const [left, right] = [one, other].map(({ events }) => wholeParts(events));
  const open = new Map(); // calls, by where they begin
  let at = 0;
  for (; at < left.length && left[at].content === right[at]?.content; at++) {
    const { type, call } = left[at];
    if (OPENS.has(type)) open.set(call, open.get(call) ?? at);
    if (type === "tool.finished") open.delete(call);
  }
  const upto = Math.min(at, ...open.values());
  return [left, right].map((parts) => parts[upto - 1]?.seq ?? 0);
}

/** Events that count, each with what is compared of it; deltas that follow each other are one. */
function wholeParts(events) {
  const parts = [];
  for (const { seq, type, call, name, text = "", arguments: given, round } of events) {
    if (APART.has(type)) continue;
    const last = parts.at(-1);
    if (DELTA.test(type) && last?.type === type && last.call === call)
      Object.assign(last, { seq, text: last.text + text });
    else parts.push({ seq, type, call, text, more: [name, given, round] });
  }
  return parts.map((part) => ({ ...part, content: JSON.stringify([part.type, part.text, part.more]) }));
}
