/** The settings of a conversation: instructions, profile and sampling; and every value that its next run has. */

import { get, patch, request } from "../../feed/api.js";
import { buttonRow, fill, h, stack } from "../../dom/elements.js";
import { actionButton, collapsible, field, problemLine, Outcome, select, submitting } from "../../dom/forms.js";
import { t, ts } from "../../dom/more_texts.js";
import { showPanel } from "../panel.js";

const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
const NUMBERS = {
  temperature: { min: 0, max: 2, step: "any" },
  top_p: { min: 0, max: 1, step: "any" },
  max_output_tokens: { min: 1, step: 1 },
  seed: { step: 1 },
};
const MODES = ["temporary", "read_only", "workspace"];
const LABELS = ts("conversation.option", Object.keys(NUMBERS));

/** Opens the panel for the open conversation, or for another one; `changed` is called when it was saved. */
export function toggle(page, button, session = null, changed = null) {
  const id = session?.id ?? page.store.get("session");
  const now = session ?? { ...page.store.get("options"), modes: page.store.get("modes") ?? {}, id };
  const save = id ? (values) => savedSession(page, id, values, changed) : (values) => savedNew(page, values);
  return showPanel(page, `options ${id}`, t("conversation.title"), () => content(page, now, save), button);
}

async function savedSession(page, id, { profile, options, modes }, changed) {
  const body = { profile, options, ...(modes && { read_only: modes.read_only }) };
  const row = await patch(`/sessions/${encodeURIComponent(id)}`, body);
  const { temporary, read_only, workspace } = row;
  const stored = {
    options: { profile: row.profile, options: row.options },
    modes: { temporary, read_only, workspace },
  };
  if (page.store.get("session") === id) page.store.set(stored);
  page.sessions.refresh();
  changed?.(row.profile);
  return row;
}

function savedNew(page, { profile, options, modes }) {
  page.store.set({ options: { profile, options }, ...(modes && { modes }) });
  return { profile, options };
}

function content(page, now, save) {
  const box = stack();
  const inForce = h("div", {});
  const saved = async (values) => {
    const row = await save(values);
    if (now.id) drawValues(inForce, now.id);
    return row;
  };
  const load = async () => {
    const [{ profiles, bound_to }, defaults] = await Promise.all([get("/profiles"), get("/preferences")]);
    fill(box, settingsForm(page, { now, save: saved, profiles, defaults }));
    if (bound_to) box.append(h("p", { class: "faint" }, t("conversation.bound", { profile: bound_to })));
    if (now.id) box.append(collapsible(t("conversation.values"), () => inForce));
    if (now.id) drawValues(inForce, now.id);
  };
  load().catch((error) => fill(box, problemLine(error)));
  return box;
}

function settingsForm(page, { now, save, profiles, defaults }) {
  const outcome = new Outcome();
  const parts = inputs(profiles, now);
  const modes = modeInputs(page, now);
  const submit = h("button", { type: "submit", class: "primary" }, t("conversation.save"));
  const set = async (values, key) => {
    const saved = await save(values);
    Object.assign(now, { profile: saved.profile, options: saved.options });
    outcome.show(t(key), "good");
  };
  const reset = actionButton(t("conversation.reset"), outcome, async () => {
    await set({ profile: null, options: {} }, "conversation.reset.done");
    parts.show({ profile: null, options: {} });
  });
  const plan = h("input", { type: "checkbox" });
  plan.checked = defaults.plan;
  const keep = actionButton(t("conversation.default"), outcome, async () => {
    const body = { ...parts.values(now), plan: plan.checked };
    const stored = await (await request("PUT", "/preferences", { body })).json();
    page.store.set({ defaults: stored });
    outcome.show(t("conversation.default.done"), "good");
  });
  const byDefault = h(
    "fieldset",
    { class: "defaults" },
    h("legend", {}, t("conversation.defaults")),
    h("p", { class: "faint" }, t("conversation.defaults.hint")),
    h("label", { class: "check" }, plan, h("span", {}, t("conversation.defaults.plan"))),
    keep,
  );
  const send = () =>
    set({ ...parts.values(now), modes: modes.values() }, now.id ? "conversation.saved" : "conversation.saved.new");
  const props = { class: "form", onsubmit: submitting(submit, outcome, send) };
  return h("form", props, parts.elements, modes.element, buttonRow(submit, reset), outcome.element, byDefault);
}

async function endNow(page, id) {
  await request("DELETE", `/sessions/${encodeURIComponent(id)}`);
  page.sessions.begin();
}

/** The modes: all for a new conversation; later only read-only changes. */
function modeInputs(page, { id, modes }) {
  const inputs = MODES.map((name) => {
    const chosen = modes?.[name];
    if (name === "workspace") return h("input", { maxlength: 1000, disabled: Boolean(id), value: chosen ?? "" });
    const box = h("input", { type: "checkbox", disabled: Boolean(id) && name === "temporary" });
    box.checked = Boolean(chosen);
    return box;
  });
  const rows = inputs.map((input, at) => field(t(`modes.${MODES[at]}`), input, t(`modes.${MODES[at]}.hint`)));
  const [temporary, readOnly, workspace] = inputs;
  const values = () => ({
    temporary: temporary.checked,
    read_only: readOnly.checked,
    workspace: workspace.value.trim(),
  });
  // Of a conversation in the list it is not known which modes it has.
  const end = id && modes?.temporary && actionButton(t("modes.end"), new Outcome(), () => endNow(page, id));
  const element = modes && h("fieldset", { class: "modes" }, h("legend", {}, t("modes.title")), rows, end || "");
  return { element: element ?? "", values: () => modes && values() };
}

/** The fields of the form; `values(now)` keeps the options that it does not show. */
function inputs(profiles, now) {
  const text = h("textarea", { rows: 5, maxlength: 16_000, dir: "auto" });
  const profile = select(profileRows(profiles, now.profile), { dir: "auto" });
  const effort = select([["", t("conversation.unset")], ...EFFORTS.map((one) => [one, one])]);
  const numbers = Object.entries(NUMBERS).map(([name, props]) => [
    name,
    h("input", { type: "number", placeholder: t("conversation.unset"), ...props }),
  ]);
  const show = ({ profile: chosen, options }) => {
    text.value = options.instructions ?? "";
    profile.value = chosen ?? "";
    effort.value = options.reasoning_effort ?? "";
    for (const [name, input] of numbers) input.value = options[name] ?? "";
  };
  const values = ({ options }) => {
    const others = { ...options };
    for (const name of ["instructions", "reasoning_effort", ...Object.keys(NUMBERS)]) delete others[name];
    const given = numbers.filter(([, input]) => input.value !== "").map(([name, input]) => [name, Number(input.value)]);
    const words = { instructions: text.value.trim(), reasoning_effort: effort.value };
    const written = Object.entries(words).filter(([, value]) => value);
    return { profile: profile.value || null, options: { ...others, ...Object.fromEntries([...written, ...given]) } };
  };
  show(now);
  const elements = [
    field(t("conversation.instructions"), text, t("conversation.instructions.hint")),
    field(t("conversation.profile"), profile, t("conversation.profile.hint")),
    h("div", { class: "pairs-of-fields" }, [
      numbers.map(([name, input]) => field(LABELS[name], input)),
      field(t("conversation.effort"), effort),
    ]),
  ];
  return { elements, show, values };
}

function profileRows(profiles, chosen) {
  const named = ({ name, options: { description } }) => (description ? `${name}: ${description}` : name);
  const rows = [["", t("conversation.profile.none")], ...profiles.map((one) => [one.name, named(one)])];
  const isGone = chosen && !profiles.some(({ name }) => name === chosen);
  return isGone ? [...rows, [chosen, t("conversation.profile.gone", { profile: chosen })]] : rows;
}

/** Every value of the next run, with the layer that it is from. */
function drawValues(box, id) {
  if (!box.firstChild) fill(box, h("p", { class: "faint", role: "status" }, t("conversation.loading")));
  get(`/options?session=${encodeURIComponent(id)}`).then(
    (options) => fill(box, table(options)),
    (error) => fill(box, h("p", { class: "problem" }, error.message)),
  );
}

const NAMED =
  "model approval when_absent memory max_rounds max_calls max_tokens time_limit_s inactivity_s tools disabled";
const CHOSEN = "prompt temperature top_p max_output_tokens seed reasoning_effort frequency_penalty presence_penalty";
const NAMES = ts("conversation.name", [...NAMED.split(" "), ...CHOSEN.split(" ")]);
const WORDS = {
  approval: { ...ts("profiles.approval", ["sandboxed", "ask", "deny"]), auto: t("composer.approvals.auto") },
  when_absent: ts("conversation.word", ["wait", "deny"]),
  memory: ts("conversation.word", ["true", "false"]),
};
const SOURCES = ts("conversation.source", ["default", "session", "request", "token"]);
const PROFILE = /^profile (.+?)( of the token)?$/u;

function table({ options, tools }) {
  const shown = options.filter(({ value }) => value !== null && value !== "");
  const names = ["option", "value", "origin"];
  const heads = names.map((name) => h("th", { scope: "col" }, t(`conversation.values.${name}`)));
  const row = ({ option, value, from }) =>
    h("tr", {}, [NAMES[option] ?? option.replaceAll("_", " "), written(option, value), origin(from)].map(cell));
  const offered = [t("conversation.offered"), list(tools), t("conversation.offered.all")];
  const body = [...shown.map(row), h("tr", {}, offered.map(cell))];
  const label = { class: "wide", tabindex: 0, role: "region", "aria-label": t("conversation.values") };
  return h("div", label, h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, body)));
}

const cell = (text) => h("td", { dir: "auto" }, text);
const list = (names) => names.join(", ") || t("conversation.values.none");
const written = (option, value) => (Array.isArray(value) ? list(value) : (WORDS[option]?.[value] ?? String(value)));

/** The layer that a value is from. */
function origin(from) {
  const [, profile, ofToken] = PROFILE.exec(from) ?? [];
  if (!profile) return SOURCES[from] ?? from;
  return t(ofToken ? "conversation.source.profile_of_token" : "conversation.source.profile", { profile });
}
