/** Webhooks: the list with the last deliveries, and the form that adds one and shows its secret once. */

import { get, patch, post, remove } from "../feed/api.js";
import { copyButton } from "../dom/copy.js";
import { formatTime } from "../dom/clock.js";
import { fill, h, icon } from "../dom/elements.js";
import { Outcome, actionButton, collapsible, confirmButton, field, runOnce } from "../dom/forms.js";
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
  const isGuest = page.store.get("me")?.role === "guest";
  const push = await pushSection();
  return h("div", { class: "stack" }, push, !isGuest && (await webhooks(page.store.get("me")?.role === "admin")));
}

async function webhooks(isAdmin) {
  const list = h("ul", { class: "tokens" });
  const offered = await get("/webhooks");
  const draw = async () => {
    const { webhooks: rows } = await get("/webhooks");
    fill(
      list,
      rows.map((row) => webhookRow(row, draw)),
    );
  };
  await draw();
  return h("div", { class: "stack" }, h("h4", {}, t("webhooks.title")), list, form(offered, isAdmin, draw));
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
  const on = actionButton(
    t("webhooks.enable"),
    outcome,
    change(() => patch(path, { enabled: true })),
  );
  return h(
    "li",
    { class: "webhook" },
    h("span", {}, h("strong", { dir: "auto" }, name), h("span", { class: "faint", dir: "ltr" }, ` ${url}`)),
    counts.some(Boolean) && h("p", { class: "faint" }, counts.filter(Boolean).join(", ")),
    state === "disabled" && h("p", { class: "problem", dir: "auto" }, reason),
    h(
      "div",
      { class: "buttons" },
      state === "disabled" && on,
      actionButton(t("push.test"), outcome, test, { "aria-label": t("push.test.named", { name }) }),
      confirmButton(
        t("webhooks.remove"),
        t("webhooks.remove.sure", { name }),
        t("webhooks.remove.yes"),
        outcome,
        change(() => remove(path)),
      ),
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
    fill(
      list,
      rows.slice(0, SHOWN).map((row) => deliveryRow(path, row, outcome, load)),
    );
    if (!rows.length) list.append(h("li", { class: "faint" }, t("webhooks.deliveries.none")));
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

function form({ events, channels }, isAdmin, draw) {
  const outcome = new Outcome();
  const url = h("input", { type: "url", required: true, maxlength: 2048, dir: "ltr", placeholder: "https://" });
  const chosen = Object.entries(events).map(([kind, words]) => {
    const box = h("input", { type: "checkbox", value: kind, checked: true });
    return [box, labelled(box, EVENTS[kind] ?? words)];
  });
  const channel = h("select", {}, ...Object.entries(channels).map(([value, words]) => h("option", { value }, words)));
  const all = h("input", { type: "checkbox" });
  const add = h("button", { type: "submit" }, icon("plus"), t("webhooks.add"));
  const once = h("div", { hidden: true });
  const made = h(
    "form",
    { class: "form" },
    field(t("webhooks.address"), url),
    field(t("webhooks.channel"), channel),
    h("fieldset", { class: "kinds" }, h("legend", {}, t("webhooks.events")), ...chosen.map(([, label]) => label)),
    isAdmin && labelled(all, t("webhooks.everyone")),
    h("div", { class: "buttons" }, add),
    outcome.element,
    once,
  );
  made.addEventListener("submit", async (event) => {
    event.preventDefault();
    const kinds = chosen.map(([box]) => box).filter((box) => box.checked);
    const body = {
      url: url.value.trim(),
      channel: channel.value,
      events: kinds.map((box) => box.value),
      ...(all.checked && { everyone: true }),
    };
    const answer = await runOnce(add, outcome, () => post("/webhooks", body));
    if (!answer) return;
    made.reset();
    fill(once, answer.secret !== null && secret(answer)); // only signed ones have one
    once.hidden = !answer.secret;
    await draw().catch((error) => outcome.show(error.message, "problem"));
  });
  return made;
}

function secret({ name, secret: text }) {
  const shown = h("input", {
    value: text,
    readonly: true,
    class: "mono",
    "aria-label": t("secret.named", { name }),
    dir: "ltr",
  });
  const done = h("button", { type: "button", onclick: () => box.remove() }, t("secret.done"));
  const copy = copyButton(t("secret.copy"), () => text, t("secret.copy.short"));
  const words = h("p", {}, h("strong", {}, t("secret.title", { name })), " ", t("webhooks.secret"));
  const box = h("div", { class: "new-token stack" }, words, shown, h("div", { class: "buttons" }, copy, done));
  return box;
}
