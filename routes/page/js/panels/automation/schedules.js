/** Schedules and triggers in the settings: lists them with their next time and last runs, adds and switches them. */

import { get, patch, post, remove } from "../../feed/api.js";
import { copyButton } from "../../dom/copy.js";
import { fill, h, icon, announce } from "../../dom/elements.js";
import { actionButton, collapsible, confirmButton, factList, field, Outcome, runOnce } from "../../dom/forms.js";

const SHOWN = 5; // last runs of each
const TIMES = {
  cron: ["Cron expression", "30 7 * * MON-FRI"],
  every: ["Interval", "90m"],
  once: ["Date and time", "2027-01-31T09:00"],
};
const SCHEMES = { hmac: "HMAC (GitHub)", standard: "Standard Webhooks", bearer: "bearer secret" };
const NONE = {
  schedules: "A schedule sends a message at its times, and begins a run of its own with tools that only read.",
  triggers: "A trigger begins a run when a webhook is delivered to it.",
};

const moment = (at) => new Date(at * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
const pathOf = (kind, { id }) => `/${kind}/${encodeURIComponent(id)}`;

/** Both lists with their forms. Raises Refused. */
export async function automation(page) {
  return h(
    "div",
    { class: "stack" },
    await section(page, "schedules", scheduleForm),
    h("h4", {}, "Triggers"),
    await section(page, "triggers", triggerForm),
  );
}

async function section(page, kind, form) {
  const list = h("ul", { class: "tokens", "aria-label": kind });
  const draw = async () => {
    const rows = (await get(`/${kind}`))[kind];
    fill(
      list,
      rows.map((one) => row(page, kind, one, draw)),
    );
    if (!rows.length) list.append(h("li", { class: "faint" }, NONE[kind]));
  };
  await draw();
  const add = kind === "schedules" ? "Add a schedule" : "Add a trigger";
  return h(
    "div",
    { class: "stack" },
    list,
    collapsible(add, () => form(draw)),
  );
}

function row(page, kind, one, draw) {
  const outcome = new Outcome();
  const path = pathOf(kind, one);
  const act = async (words, work) => {
    await work();
    announce(words);
    await draw();
  };
  const turn = () => patch(path, { enabled: !one.enabled });
  const [does, done] = one.enabled ? ["Switch off", "Switched off."] : ["Switch on", "Switched on."];
  const run = () => act("A run begins.", () => post(`${path}/run`));
  return h(
    "li",
    {},
    h("strong", { dir: "auto" }, one.name),
    h("p", { class: "faint", dir: "auto" }, one.message),
    factList(kind === "schedules" ? timeFacts(one) : triggerFacts(one)),
    lastRuns(page, one.last),
    h(
      "div",
      { class: "buttons" },
      actionButton(does, outcome, () => act(done, turn), { "aria-label": `${does}: ${one.name}` }),
      kind === "schedules" && actionButton("Run now", outcome, run, { "aria-label": `Run now: ${one.name}` }),
      confirmButton("Remove", `Remove ${one.name}? Its conversations are kept.`, "Remove it", outcome, () =>
        act("Removed.", () => remove(path)),
      ),
    ),
    outcome.element,
  );
}

function timeFacts(one) {
  const kind = Object.keys(TIMES).find((name) => one[name] !== null);
  return [
    ["Times", `${kind} ${one[kind]} (${one.time_zone})`],
    ["Next", one.next ? moment(one.next) : one.enabled ? "never again" : "switched off"],
  ];
}

const triggerFacts = (one) => [
  ["Deliveries", h("code", {}, `POST ${location.origin}${one.path}`)],
  ["Proof", SCHEMES[one.scheme] ?? one.scheme],
  ["State", one.enabled ? "" : "switched off"],
];

function lastRuns(page, last) {
  if (!last.length) return null;
  return h(
    "ul",
    { class: "faint", "aria-label": "Last runs" },
    last.slice(0, SHOWN).map(({ at, outcome, reason, run, state }) => {
      const words = `${moment(at)}: ${state ?? outcome}${reason ? `. ${reason}` : ""}`;
      return h("li", { dir: "auto" }, state ? runLink(page, run, words) : words); // none once its run is deleted
    }),
  );
}

/** Opens the conversation of a run. */
function runLink(page, run, words) {
  const onclick = async () => {
    const { session } = await get(`/runs/${encodeURIComponent(run)}`);
    page.conversation.open(session);
  };
  return h("button", { type: "button", class: "quiet", onclick }, words);
}

const option = ([value, words]) => h("option", { value }, words);

/** A form that adds one: `read` returns the fields beside name, message and tools, `added` gets the answer. */
function form(path, parts, read, words, added) {
  const outcome = new Outcome();
  const name = h("input", { required: true, maxlength: 80, autocomplete: "off" });
  const message = h("textarea", { required: true, rows: 3 });
  const tools = h("input", { autocomplete: "off", dir: "ltr" });
  const make = h("button", { type: "submit" }, icon("plus"), words);
  const element = h(
    "form",
    { class: "form" },
    field("Name", name),
    field("Message", message),
    parts,
    field("Tools", tools, "Separated by commas. Without them: those that only read."),
    h("div", { class: "buttons" }, make),
    outcome.element,
  );
  element.addEventListener("submit", async (event) => {
    event.preventDefault();
    const names = tools.value.split(",").map((one) => one.trim());
    const chosen = names.filter(Boolean);
    const fields = { name: name.value, message: message.value, ...(chosen.length && { tools: chosen }), ...read() };
    const made = await runOnce(make, outcome, () => post(path, fields));
    if (!made) return;
    element.reset();
    await added(made, outcome);
  });
  return element;
}

function scheduleForm(draw) {
  const kind = h(
    "select",
    {},
    Object.entries(TIMES).map(([value, [words]]) => option([value, words])),
  );
  const when = h("input", { required: true, maxlength: 200, autocomplete: "off", dir: "ltr" });
  const zone = h("input", { value: Intl.DateTimeFormat().resolvedOptions().timeZone, maxlength: 64, dir: "ltr" });
  const example = () => (when.placeholder = TIMES[kind.value][1]);
  kind.addEventListener("change", example);
  example();
  const parts = [field("Kind", kind), field("Time", when), field("Time zone", zone)];
  const read = () => ({ [kind.value]: when.value, ...(zone.value && { time_zone: zone.value }) });
  return form("/schedules", parts, read, "Add the schedule", async (_, outcome) => {
    outcome.show("Added.", "good");
    await draw();
  });
}

function triggerForm(draw) {
  const scheme = h("select", {}, Object.entries(SCHEMES).map(option));
  const template = h("textarea", { rows: 2, dir: "ltr", placeholder: "{{repository.name}}" });
  const hint = "What of the delivered JSON the model reads. Without it: all. The model gets it as untrusted data.";
  const parts = [field("Proof of a delivery", scheme), field("Template", template, hint)];
  const read = () => ({ scheme: scheme.value, template: template.value });
  const once = h("div", { hidden: true });
  const element = form("/triggers", parts, read, "Add the trigger", async ({ name, secret }) => {
    fill(once, shownOnce(name, secret));
    once.hidden = false;
    await draw();
  });
  return h("div", { class: "stack" }, element, once);
}

/** A new secret, shown once: the button removes it from the page. */
function shownOnce(name, secret) {
  const text = h("input", {
    value: secret,
    readonly: true,
    class: "mono",
    "aria-label": `Secret of ${name}`,
    dir: "ltr",
  });
  const box = h("div", { class: "new-token stack" });
  const done = () => {
    text.value = "";
    box.remove();
  };
  return fill(
    box,
    h("p", {}, h("strong", {}, `The secret of ${name}. `), "It is shown only once and cannot be retrieved later."),
    text,
    h(
      "div",
      { class: "buttons" },
      copyButton("Copy the secret", () => secret, "Copy"),
      h("button", { type: "button", onclick: done }, "Done"),
    ),
  );
}
