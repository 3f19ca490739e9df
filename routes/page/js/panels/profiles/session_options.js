/** The options of a conversation: its profile, and every value that its next run has, with the layer it is from. */

import { get, patch } from "../../feed/api.js";
import { announce, fill, h } from "../../dom/elements.js";
import { Outcome, field } from "../../dom/forms.js";
import { showPanel } from "../panel.js";

const NONE = "No profile";
const BOUND = (name) => `Your token is bound to the profile ${name}: another one can only narrow it.`;
const NAMES = {
  temperature: "temperature",
  approval: "approvals",
  when_absent: "calls that ask",
  max_rounds: "rounds",
  max_calls: "tool calls",
  max_tokens: "tokens",
  time_limit_s: "seconds",
  inactivity_s: "seconds of silence",
  tools: "only tools",
  disabled: "no tools",
  prompt: "instructions",
};

/** Opens the panel for a conversation. `changed` is called when its profile has changed. */
export function toggle(page, session, button, changed) {
  return showPanel(
    page,
    `options ${session.id}`,
    "Options of this conversation",
    () => content(session, changed),
    button,
  );
}

function content(session, changed) {
  const box = h("div", { class: "stack" });
  const outcome = new Outcome();
  const draw = async () => {
    const [{ profiles, bound_to }, options] = await Promise.all([
      get("/profiles"),
      get(`/options?session=${encodeURIComponent(session.id)}`),
    ]);
    fill(
      box,
      picker(session, profiles, outcome, changed, load),
      bound_to && h("p", { class: "faint" }, BOUND(bound_to)),
    );
    box.append(outcome.element, values(options));
  };
  const load = () => draw().catch((error) => fill(box, h("p", { class: "problem", role: "alert" }, error.message)));
  load();
  return box;
}

function picker(session, profiles, outcome, changed, draw) {
  const rows = [["", NONE], ...profiles.map(({ name, options }) => [name, named(name, options.description)])];
  if (session.profile && !profiles.some(({ name }) => name === session.profile)) {
    rows.push([session.profile, `${session.profile}: deleted; choose another one`]);
  }
  const select = h(
    "select",
    { dir: "auto" },
    rows.map(([value, words]) => h("option", { value }, words)),
  );
  select.value = session.profile ?? "";
  select.addEventListener("change", async () => {
    try {
      const { profile } = await patch(`/sessions/${encodeURIComponent(session.id)}`, { profile: select.value || null });
      session.profile = profile;
      announce(profile ? `The next turns use the profile ${profile}.` : "The next turns use no profile.");
      changed(profile);
      await draw();
    } catch (error) {
      outcome.show(error.message, "problem");
      select.value = session.profile ?? "";
    }
  });
  return field("Profile", select, "Profiles only narrow what runs may do. Active runs keep theirs.");
}

const named = (name, description) => (description ? `${name}: ${description}` : name);

function values({ options, tools }) {
  const shown = options.filter(({ value }) => value !== null && value !== "");
  const head = h(
    "tr",
    {},
    ["Option", "Value", "From"].map((name) => h("th", { scope: "col" }, name)),
  );
  const row = ({ option, value, from }) =>
    h("tr", {}, [NAMES[option] ?? option.replaceAll("_", " "), written(value), from].map(cell));
  const body = [...shown.map(row), row({ option: "tools offered", value: tools, from: "all layers" })];
  return h(
    "div",
    { class: "wide", tabindex: 0, role: "region", "aria-label": "Options in force" },
    h("table", {}, h("thead", {}, head), h("tbody", {}, body)),
  );
}

const cell = (text) => h("td", { dir: "auto" }, text);
const WORDS = { true: "on", false: "off" };
const written = (value) => (Array.isArray(value) ? value.join(", ") || "none" : (WORDS[value] ?? String(value)));
