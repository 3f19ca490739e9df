/** The audit, for admins: every decision with the call that was decided on; filtered, and page by page. */

import { get } from "../../feed/api.js";
import { formatAgo } from "../../dom/clock.js";
import { fill, h, stack } from "../../dom/elements.js";
import { actionButton, field, Outcome, submitting } from "../../dom/forms.js";
import { locale, t } from "../../dom/more_texts.js";
import { escapeLine, exactBlock } from "../../text/exact_text.js";

const PAGE = 50;
const FILTERS = ["principal", "action", "decision"];
const MAIN = ["command", "path", "url", "query", "code"]; // arguments that say what a call is for

/** The list with its filters. Raises Refused. */
export async function audit() {
  const list = h("ol", { class: "decisions" });
  const outcome = new Outcome();
  const props = { type: "search", maxlength: 100, autocomplete: "off", dir: "auto" };
  const inputs = FILTERS.map((name) => [name, h("input", props)]);
  let last = null;
  const read = async (before) => {
    const given = inputs.filter(([, { value }]) => value.trim()).map(([name, { value }]) => [name, value.trim()]);
    const query = new URLSearchParams({
      ...Object.fromEntries(given),
      calls: 1,
      limit: PAGE,
      ...(before && { before }),
    });
    const { audit: rows } = await get(`/audit?${query}`);
    if (!before) fill(list);
    list.append(...rows.map(decision));
    if (!list.firstChild) list.append(h("li", { class: "faint" }, t("audit.none")));
    last = rows.at(-1)?.number;
    more.hidden = rows.length < PAGE;
  };
  const more = actionButton(t("audit.more"), outcome, () => read(last));
  const find = h("button", { type: "submit" }, t("audit.filter"));
  const onsubmit = submitting(find, outcome, () => read(null));
  const fields = inputs.map(([name, input]) => field(t(`audit.${name}`), input));
  const form = h("form", { class: "audit-filter", role: "search", onsubmit }, fields, find);
  await read(null);
  const region = h("div", { role: "region", "aria-label": t("audit.title"), tabindex: 0 }, list);
  return stack(form, outcome.element, region, more);
}

function decision(row) {
  const { at, principal, action, decision: decided, why, by } = row;
  const when = new Date(at * 1000);
  const props = { datetime: when.toISOString(), title: when.toLocaleString(locale), class: "faint" };
  const persons = principal && by && by !== principal ? t("audit.by", { principal, by }) : principal || by;
  const main = mainOf(row.arguments);
  const head = h(
    "span",
    { class: "decision-head" },
    h("strong", { dir: "auto" }, escapeLine(action)),
    h("span", { class: "decided" }, escapeLine(decided)),
    h("span", { dir: "auto" }, persons),
    h("time", props, formatAgo(at)),
  );
  const reason = why && h("span", { class: "faint", dir: "auto" }, escapeLine(why));
  if (!row.arguments) return h("li", { class: "decision" }, head, reason);
  const details = h("details", {}, h("summary", {}, head, h("code", { dir: "ltr" }, escapeLine(main))), reason);
  details.addEventListener("toggle", () => open(details, row), { once: true });
  return h("li", { class: "decision" }, details);
}

/** What a call is for, in one line. */
function mainOf(given) {
  if (!given) return "";
  const name = MAIN.find((one) => typeof given[one] === "string");
  return name ? given[name] : JSON.stringify(given);
}

/** Shows all arguments of the call. */
async function open(details, { number }) {
  const box = h("div", { class: "decision-call" }, t("audit.loading"));
  details.append(box);
  try {
    const { arguments: given, at } = await get(`/audit/${number}`);
    const one = ([name, value]) => [h("h5", {}, escapeLine(name)), exactBlock(textOf(value), escapeLine(name))];
    const text = given && Object.entries(given).map(one);
    fill(box, h("p", { class: "faint" }, new Date(at * 1000).toLocaleString(locale)), text ?? t("audit.gone"));
  } catch (error) {
    fill(box, h("p", { class: "problem" }, error.message));
  }
}

const textOf = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
