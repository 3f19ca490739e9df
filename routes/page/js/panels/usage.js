/** How full the context window is, and the token usage of the conversation. */

import { button, fill, h, stack } from "../dom/elements.js";
import { factList } from "../dom/forms.js";
import { windowOf } from "./models.js";
import { showPanel } from "./panel.js";
import { language, t } from "../dom/texts.js";

const FULL = 0.8; // of the window: soon after it the conversation is summarised or shortened
const SUMS = { prompt_tokens: "total_prompt_tokens", completion_tokens: "total_completion_tokens", cost: "total_cost" };

/** Adds up the usage of the open conversation: the total of its log, plus the later usage of its runs. */
class UsageTotals {
  #byRun = new Map(); // the last usage of each run
  latest = null; // the usage of the last round: how full the window is
  sum = {};

  begin(usage = {}) {
    this.#byRun.clear();
    this.latest = null;
    this.sum = { ...usage };
  }

  /** The total from the log; it includes the usage of restored runs. */
  base(usage) {
    this.sum = { ...usage };
  }

  add(usage) {
    const before = this.#byRun.get(usage.run) ?? {};
    this.#byRun.set(usage.run, usage);
    if (!usage.restored || !this.latest || (this.latest.restored && usage.created >= this.latest.created))
      this.latest = usage;
    if (usage.restored) return;
    for (const [name, total] of Object.entries(SUMS)) {
      if (usage[total] !== undefined) this.sum[name] = (this.sum[name] ?? 0) + usage[total] - (before[total] ?? 0);
    }
  }
}

/** The button with the meter. */
export function usageButton(page) {
  const spent = new UsageTotals();
  const bar = h("span", { class: "meter", "aria-hidden": "true" }, h("span", { class: "meter-fill" }));
  const words = h("span", { class: "status-room" });
  const share = h("span", { class: "status-share", "aria-hidden": "true" });
  const more = h("span", { class: "status-more" });
  const props = { class: "status-item", "aria-expanded": "false", hidden: true };
  const item = button([bar, words, share, more], () => toggle(page, spent, item), props);
  const draw = () => {
    const state = fullness(page, spent);
    item.hidden = !spent.latest;
    item.dataset.full = state.share > FULL;
    bar.hidden = state.share === null;
    bar.firstChild.style.setProperty("width", `${Math.min(100, (state.share ?? 0) * 100)}%`);
    fill(share, state.share === null ? short(state.used ?? 0) : `${Math.round(state.share * 100)} %`);
    fill(words, h("span", { class: "visually-hidden" }, t("usage.context"), " "), state.words);
    fill(more, page.store.get("context") ? ` · ${t("usage.shortened")}` : "", total(spent.sum));
  };
  page.store.watch("session", () => spent.begin());
  page.store.watch("spent", (usage) => spent.base(usage));
  page.store.watch("usage", (usage) => spent.add(usage));
  for (const key of ["session", "spent", "usage", "context", "endpoints", "model", "server"])
    page.store.watch(key, draw);
  return item;
}

function fullness(page, { latest }) {
  if (!latest) return { share: null, words: "" };
  const used = latest.prompt_tokens + latest.completion_tokens;
  const room = windowOf(page, latest.model);
  if (!room) return { share: null, used, words: t("usage.tokens", { count: used }) };
  return { share: used / room, used, room, words: t("usage.tokens.of", { used, room }) };
}

/** A cost in local number format: prices have no currency here. */
export const money = (cost) => cost.toLocaleString(language, { maximumSignificantDigits: 3 });

const total = (sum) => (sum.cost ? ` · ${t("run.cost", { amount: money(sum.cost) })}` : "");

/** `950`, `12.4K`, `3.1M`. */
const short = (count) => count.toLocaleString(language, { notation: "compact", maximumFractionDigits: 1 });

function toggle(page, spent, opener) {
  const build = (watch) => {
    const box = stack();
    const draw = () => fill(box, content(page, spent));
    for (const key of ["usage", "spent", "context", "endpoints"]) watch(key, draw);
    draw();
    return box;
  };
  return showPanel(page, "usage", t("usage.title"), build, opener);
}

function content(page, spent) {
  const { used, room, share } = fullness(page, spent);
  const { latest, sum } = spent;
  const context = page.store.get("context");
  return [
    h("h3", {}, t("usage.window")),
    factList([
      [t("usage.in_use"), used && t("usage.tokens", { count: used })],
      [t("usage.size"), room ? t("usage.tokens", { count: room }) : t("usage.unknown")],
      [t("usage.used"), share !== null && `${Math.round(share * 100)} %`],
      [t("usage.cached"), latest?.cached_tokens ? t("usage.tokens", { count: latest.cached_tokens }) : null],
      [t("usage.repeated"), repeated(latest)],
      [t("usage.counted"), latest && t(latest.measured ? "usage.counted.measured" : "usage.counted.estimated")],
    ]),
    context && h("p", {}, lastReduction(context)),
    h("p", { class: "faint" }, t("usage.meaning")),
    h("h3", {}, t("usage.conversation")),
    factList([
      [t("usage.input"), t("usage.tokens", { count: sum.prompt_tokens ?? 0 })],
      [t("usage.output"), t("usage.tokens", { count: sum.completion_tokens ?? 0 })],
      [t("usage.estimated"), sum.estimated_tokens ? t("usage.tokens", { count: sum.estimated_tokens }) : null],
      [t("usage.cost"), sum.cost ? money(sum.cost) : t("usage.cost.none")],
    ]),
  ];
}

/** The share of the last prompt that equals the one before, and why the rest differs. */
function repeated(latest) {
  if (!latest?.prompt_bytes) return null;
  const share = `${Math.floor((100 * latest.prefix_bytes) / latest.prompt_bytes)} %`;
  return latest.prefix_break ? `${share} · ${t(`usage.break.${latest.prefix_break}`)}` : share;
}

/** The last reduction of the context. */
function lastReduction({ type, dropped, shortened, messages }) {
  if (type === "context.summarised") return t("usage.summarised", { count: messages });
  return t("usage.trimmed", { dropped, shortened });
}
