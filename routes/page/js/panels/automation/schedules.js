/** Schedules and triggers in the settings: lists them with their next time and last runs, adds and switches them. */

import { get, patch, post, remove } from "../../feed/api.js";
import { formatMoment } from "../../dom/clock.js";
import { announce, button, buttonRow, fill, h, icon, stack } from "../../dom/elements.js";
import {
  actionButton,
  collapsible,
  confirmButton,
  factList,
  field,
  fillRows,
  Outcome,
  select,
  sendForm,
} from "../../dom/forms.js";
import { secretOnce } from "../../dom/secret.js";
import { t, ts } from "../../dom/more_texts.js";

const SHOWN = 5; // last runs of each
const TIMES = { cron: "30 7 * * MON-FRI", every: "90m", once: "2027-01-31T09:00" };
const KINDS = ts("automation.time", Object.keys(TIMES));
const OUTCOMES = ts("automation.outcome", [
  "started",
  "skipped",
  "refused",
  "missed",
  "queued",
  "running",
  "answered",
  "cancelled",
]);
const SCHEMES = ts("automation.scheme", ["hmac", "standard", "bearer"]);

/** Both lists with their forms. Raises Refused. */
export async function automation(page) {
  const schedules = await section(page, "schedules", scheduleForm);
  return stack(schedules, h("h4", {}, t("automation.triggers")), await section(page, "triggers", triggerForm));
}

async function section(page, kind, form) {
  const list = h("ul", { class: "tokens", "aria-label": t(`automation.${kind}`) });
  const draw = async () => {
    const rows = (await get(`/${kind}`))[kind];
    fillRows(list, rows, (one) => row(page, kind, one, draw), t(`automation.none.${kind}`));
  };
  await draw();
  const adding = collapsible(t(`automation.new.${kind}`), () => form(draw));
  return stack(list, adding);
}

function row(page, kind, one, draw) {
  const outcome = new Outcome();
  const path = `/${kind}/${encodeURIComponent(one.id)}`;
  const act = async (words, work) => {
    await work();
    announce(words);
    await draw();
  };
  const turn = () => patch(path, { enabled: !one.enabled });
  const { name } = one;
  const off = one.enabled ? "off" : "on";
  const run = () => act(t("automation.run.done"), () => post(`${path}/run`));
  const away = () => act(t("automation.removed"), () => remove(path));
  const sure = t("automation.remove.sure", { name });
  const there = ["new", "one"].includes(one.session) ? null : one.session; // it answers in this conversation
  return h(
    "li",
    {},
    h("strong", { dir: "auto" }, one.name),
    h("p", { class: "faint", dir: "auto" }, one.message),
    factList(kind === "schedules" ? timeFacts(one) : triggerFacts(one)),
    lastRuns(page, one.last),
    buttonRow(
      actionButton(t(`automation.switch.${off}`), outcome, () => act(t(`automation.switched.${off}`), turn), {
        "aria-label": t(`automation.switch_named.${off}`, { name }),
      }),
      there && actionButton(t("automation.conversation"), outcome, () => page.conversation.open(there)),
      kind === "schedules" &&
        actionButton(t("automation.run"), outcome, run, { "aria-label": t("automation.run.named", { name }) }),
      confirmButton(t("automation.remove"), sure, t("automation.remove.yes"), outcome, away),
    ),
    outcome.element,
  );
}

function timeFacts(one) {
  const kind = Object.keys(TIMES).find((name) => one[name] !== null);
  return [
    [KINDS[kind], `${one[kind]} (${one.time_zone})`],
    [t("automation.next"), one.next ? formatMoment(one.next) : t(one.enabled ? "automation.never" : "automation.off")],
  ];
}

const triggerFacts = (one) => [
  [t("automation.deliveries"), h("code", {}, `POST ${location.origin}${one.path}`)],
  [t("automation.proof"), SCHEMES[one.scheme] ?? one.scheme],
  [t("automation.state"), one.enabled ? "" : t("automation.off")],
];

function lastRuns(page, last) {
  if (!last.length) return null;
  const rows = last.slice(0, SHOWN).map(({ at, outcome, reason, run, state }) => {
    const code = state ?? outcome;
    const words = `${formatMoment(at)}: ${OUTCOMES[code] ?? code}${reason ? `. ${reason}` : ""}`;
    return h("li", { dir: "auto" }, state ? runLink(page, run, words) : words); // none once its run is deleted
  });
  return h("ul", { class: "faint", "aria-label": t("automation.last") }, rows);
}

/** Opens the conversation of a run. */
function runLink(page, run, words) {
  const open = async () => {
    const { session } = await get(`/runs/${encodeURIComponent(run)}`);
    page.conversation.open(session);
  };
  return button(words, open, { class: "quiet" });
}

/** A form that adds one: `read` returns the fields beside name, message and tools, `added` gets the answer. */
function form(path, parts, read, words, added) {
  const name = h("input", { required: true, maxlength: 80, autocomplete: "off" });
  const message = h("textarea", { required: true, rows: 3 });
  const tools = h("input", { autocomplete: "off", dir: "ltr" });
  const make = h("button", { type: "submit" }, icon("plus"), words);
  const fields = [
    field(t("automation.name"), name),
    field(t("automation.message"), message),
    parts,
    field(t("automation.tools"), tools, t("automation.tools.hint")),
  ];
  const send = () => {
    const names = tools.value.split(",").map((one) => one.trim());
    const chosen = names.filter(Boolean);
    return post(path, { name: name.value, message: message.value, ...(chosen.length && { tools: chosen }), ...read() });
  };
  return sendForm(fields, make, send, added);
}

function scheduleForm(draw) {
  const kind = select(Object.entries(KINDS));
  const when = h("input", { required: true, maxlength: 200, autocomplete: "off", dir: "ltr" });
  const zone = h("input", { value: Intl.DateTimeFormat().resolvedOptions().timeZone, maxlength: 64, dir: "ltr" });
  const example = () => (when.placeholder = TIMES[kind.value]);
  kind.addEventListener("change", example);
  example();
  const parts = [
    field(t("automation.kind"), kind),
    field(t("automation.when"), when),
    field(t("automation.zone"), zone),
  ];
  const read = () => ({ [kind.value]: when.value, ...(zone.value && { time_zone: zone.value }) });
  return form("/schedules", parts, read, t("automation.add.schedules"), async (_, outcome) => {
    outcome.show(t("automation.added"), "good");
    await draw();
  });
}

function triggerForm(draw) {
  const scheme = select(Object.entries(SCHEMES));
  const template = h("textarea", { rows: 2, dir: "ltr", placeholder: "{{repository.name}}" });
  const parts = [
    field(t("automation.proof.field"), scheme),
    field(t("automation.template"), template, t("automation.template.hint")),
  ];
  const read = () => ({ scheme: scheme.value, template: template.value });
  const once = h("div", { hidden: true });
  const element = form("/triggers", parts, read, t("automation.add.triggers"), async (made) => {
    const words = [h("strong", {}, t("secret.title", { name: made.name })), " ", t("secret.once")];
    fill(once, secretOnce(made, words)).hidden = false;
    await draw();
  });
  return stack(element, once);
}
