/** Webhooks: the list with the last deliveries, and the form that adds one and shows its secret once. */

import { get, patch, post, remove } from "../feed/api.js";
import { formatTime } from "../dom/clock.js";
import { buttonRow, fill, h, icon, stack } from "../dom/elements.js";
import { Outcome, actionButton, collapsible, confirmButton, field, fillRows, select, sendForm } from "../dom/forms.js";
import { secretOnce } from "../dom/secret.js";
import { pushSection, resultOf } from "./push_switch.js";
import { t, ts } from "../dom/more_texts.js";

const SHOWN = 5; // deliveries
const STATES = ts("webhooks.delivery", ["pending", "delivered", "dead"]);
const EVENTS = ts("webhooks.event", [
  "approval.required",
  "run.ended",
  "job.ended",
  "budget.low",
  "canary.fired",
  "endpoint.disabled",
]);

/** All of the section. Raises Refused. */
export async function receivers(page) {
  const role = page.store.get("me")?.role;
  const push = await pushSection();
  return stack(push, role !== "guest" && (await webhooks(role === "admin")));
}

async function webhooks(isAdmin) {
  const list = h("ul", { class: "tokens" });
  const offered = await get("/webhooks");
  const draw = async () => {
    const { webhooks: rows } = await get("/webhooks");
    fillRows(list, rows, (row) => webhookRow(row, draw));
  };
  await draw();
  return stack(h("h4", {}, t("webhooks.title")), list, form(offered, isAdmin, draw));
}

function webhookRow({ id, name, url, state, reason, pending, dropped }, draw) {
  const outcome = new Outcome();
  const path = `/webhooks/${encodeURIComponent(id)}`;
  const test = async () => outcome.show(...resultOf(await post(`${path}/test`)));
  const change = (work) => async () => {
    await work();
    await draw();
  };
  const counts = [
    pending && t("webhooks.pending", { count: pending }),
    dropped && t("webhooks.dropped", { count: dropped }),
  ];
  const enable = change(() => patch(path, { enabled: true }));
  const away = change(() => remove(path));
  const sure = t("webhooks.remove.sure", { name });
  return h(
    "li",
    { class: "webhook" },
    h("span", {}, h("strong", { dir: "auto" }, name), h("span", { class: "faint", dir: "ltr" }, ` ${url}`)),
    counts.some(Boolean) && h("p", { class: "faint" }, counts.filter(Boolean).join(", ")),
    state === "disabled" && h("p", { class: "problem", dir: "auto" }, reason),
    buttonRow(
      state === "disabled" && actionButton(t("webhooks.enable"), outcome, enable),
      actionButton(t("push.test"), outcome, test, { "aria-label": t("push.test.named", { name }) }),
      confirmButton(t("webhooks.remove"), sure, t("webhooks.remove.yes"), outcome, away),
    ),
    outcome.element,
    collapsible(t("webhooks.deliveries"), () => deliveries(path)),
  );
}

function deliveries(path) {
  const list = h("ul", { class: "deliveries" });
  const outcome = new Outcome();
  const load = async () => {
    const { deliveries: rows } = await get(`${path}/deliveries`);
    const rowOf = (row) => deliveryRow(path, row, outcome, load);
    fillRows(list, rows.slice(0, SHOWN), rowOf, t("webhooks.deliveries.none"));
  };
  load().catch((error) => outcome.show(error.message, "problem"));
  return h("div", {}, list, outcome.element);
}

function deliveryRow(path, { id, type, state, attempts, error, created }, outcome, load) {
  const retry = async () => {
    await post(`${path}/deliveries/${encodeURIComponent(id)}/retry`);
    await load();
  };
  const words = t("webhooks.attempts", { count: attempts, state: STATES[state] ?? state });
  return h(
    "li",
    {},
    h("span", {}, `${formatTime(created)} ${type}: ${words}`),
    error && h("p", { class: "faint", dir: "auto" }, error),
    state === "dead" && actionButton(t("webhooks.retry"), outcome, retry),
  );
}

const labelled = (box, words) => h("div", { class: "notify-switch" }, h("label", {}, box, h("span", {}, words)));

function form({ events, channels, decides }, isAdmin, draw) {
  const url = h("input", { type: "url", required: true, maxlength: 2048, dir: "ltr", placeholder: "https://" });
  const chosen = Object.entries(events).map(([kind, words]) => {
    const box = h("input", { type: "checkbox", value: kind, checked: true });
    return [box, labelled(box, EVENTS[kind] ?? words)];
  });
  const channel = select(Object.entries(channels));
  const all = h("input", { type: "checkbox" });
  const links = h("input", { type: "checkbox" });
  const add = h("button", { type: "submit" }, icon("plus"), t("webhooks.add"));
  const once = h("div", { hidden: true });
  const fields = [
    field(t("webhooks.address"), url),
    field(t("webhooks.channel"), channel),
    h("fieldset", { class: "kinds" }, h("legend", {}, t("webhooks.events")), ...chosen.map(([, label]) => label)),
    decides && labelled(links, t("webhooks.decides")),
    isAdmin && labelled(all, t("webhooks.everyone")),
  ];
  const send = () => {
    const kinds = chosen.map(([box]) => box).filter((box) => box.checked);
    const body = { url: url.value.trim(), channel: channel.value, events: kinds.map((box) => box.value) };
    return post("/webhooks", {
      ...body,
      ...(all.checked && { everyone: true }),
      ...(links.checked && { decides: true }),
    });
  };
  const made = sendForm(fields, add, send, async (answer, outcome) => {
    const words = [h("strong", {}, t("secret.title", { name: answer.name })), " ", t("webhooks.secret")];
    fill(once, answer.secret !== null && secretOnce(answer, words)); // only signed ones have one
    once.hidden = !answer.secret;
    await draw().catch((error) => outcome.show(error.message, "problem"));
  });
  made.append(once);
  return made;
}
