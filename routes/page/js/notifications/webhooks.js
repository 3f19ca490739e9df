/** Webhooks: the list with the last deliveries, and the form that adds one and shows its secret once. */

import { get, patch, post, remove } from "../feed/api.js";
import { copyButton } from "../dom/copy.js";
import { formatTime } from "../dom/clock.js";
import { fill, h, icon } from "../dom/elements.js";
import { Outcome, actionButton, collapsible, confirmButton, field, runOnce } from "../dom/forms.js";
import { pushSection, resultOf } from "./push_switch.js";

const SHOWN = 5; // deliveries
const ONCE = "It is shown only once. The receiver verifies the signature of each message with it.";

/** All of the section. Raises Refused. */
export async function receivers(page) {
  const isGuest = page.store.get("me")?.role === "guest";
  const push = await pushSection();
  return h("div", { class: "stack" }, push, !isGuest && (await webhooks(page.store.get("me")?.role === "admin")));
}

async function webhooks(isAdmin) {
  const list = h("ul", { class: "tokens" });
  const { events } = await get("/webhooks");
  const draw = async () => {
    const { webhooks: rows } = await get("/webhooks");
    fill(
      list,
      rows.map((row) => webhookRow(row, draw)),
    );
  };
  await draw();
  return h("div", { class: "stack" }, h("h4", {}, "Webhooks"), list, form(events, isAdmin, draw));
}

function webhookRow({ id, name, url, state, reason, pending, dropped }, draw) {
  const outcome = new Outcome();
  const path = `/webhooks/${encodeURIComponent(id)}`;
  const test = async () => outcome.show(...resultOf(await post(`${path}/test`)));
  const change = (work) => async () => {
    await work();
    await draw();
  };
  const counts = [pending && `${pending} waiting`, dropped && `${dropped} dropped`].filter(Boolean).join(", ");
  const on = actionButton(
    "Switch on",
    outcome,
    change(() => patch(path, { enabled: true })),
  );
  return h(
    "li",
    { class: "webhook" },
    h("span", {}, h("strong", { dir: "auto" }, name), h("span", { class: "faint", dir: "ltr" }, ` ${url}`)),
    counts && h("p", { class: "faint" }, counts),
    state === "disabled" && h("p", { class: "problem", dir: "auto" }, reason),
    h(
      "div",
      { class: "buttons" },
      state === "disabled" && on,
      actionButton("Test", outcome, test, { "aria-label": `Test ${name}` }),
      confirmButton(
        "Remove",
        `Remove ${name}? What waits for it is not sent.`,
        "Remove it",
        outcome,
        change(() => remove(path)),
      ),
    ),
    outcome.element,
    collapsible("Last deliveries", () => deliveries(path)),
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
    if (!rows.length) list.append(h("li", { class: "faint" }, "None yet."));
  };
  load().catch((error) => outcome.show(error.message, "problem"));
  return h("div", {}, list, outcome.element);
}

function deliveryRow(path, { id, type, state, attempts, error, created }, outcome, load) {
  const retry = async () => {
    await post(`${path}/deliveries/${encodeURIComponent(id)}/retry`);
    await load();
  };
  const words = `${formatTime(created)} ${type}: ${state}, attempts: ${attempts}`;
  return h(
    "li",
    {},
    h("span", {}, words),
    error && h("p", { class: "faint", dir: "auto" }, error),
    state === "dead" && actionButton("Try again", outcome, retry),
  );
}

const labelled = (box, words) => h("div", { class: "notify-switch" }, h("label", {}, box, h("span", {}, words)));

function form(events, isAdmin, draw) {
  const outcome = new Outcome();
  const url = h("input", { type: "url", required: true, maxlength: 2048, dir: "ltr", placeholder: "https://" });
  const chosen = Object.entries(events).map(([kind, words]) => {
    const box = h("input", { type: "checkbox", value: kind, checked: true });
    return [box, labelled(box, words)];
  });
  const all = h("input", { type: "checkbox" });
  const add = h("button", { type: "submit" }, icon("plus"), "Add a webhook");
  const once = h("div", { hidden: true });
  const made = h(
    "form",
    { class: "form" },
    field("Address", url),
    h("fieldset", { class: "kinds" }, h("legend", {}, "Events"), ...chosen.map(([, label]) => label)),
    isAdmin && labelled(all, "Of all principals"),
    h("div", { class: "buttons" }, add),
    outcome.element,
    once,
  );
  made.addEventListener("submit", async (event) => {
    event.preventDefault();
    const kinds = chosen.map(([box]) => box).filter((box) => box.checked);
    const body = {
      url: url.value.trim(),
      events: kinds.map((box) => box.value),
      ...(all.checked && { everyone: true }),
    };
    const answer = await runOnce(add, outcome, () => post("/webhooks", body));
    if (!answer) return;
    made.reset();
    fill(once, secret(answer));
    once.hidden = false;
    await draw().catch((error) => outcome.show(error.message, "problem"));
  });
  return made;
}

function secret({ name, secret: text }) {
  const shown = h("input", {
    value: text,
    readonly: true,
    class: "mono",
    "aria-label": `Secret of ${name}`,
    dir: "ltr",
  });
  const done = h("button", { type: "button", onclick: () => box.remove() }, "Done");
  const copy = copyButton("Copy the secret", () => text, "Copy");
  const words = h("p", {}, h("strong", {}, `The secret of ${name}. `), ONCE);
  const box = h("div", { class: "new-token stack" }, words, shown, h("div", { class: "buttons" }, copy, done));
  return box;
}
