/** The settings panel: identity, theme, usage of the month; for admins tokens and the audit log. */

import { get } from "../feed/api.js";
import { fill, h } from "../dom/elements.js";
import { Outcome, actionButton, runOnce, factList, field, collapsible, formatNumber } from "../dom/forms.js";
import { LANGUAGE, LANGUAGES, t } from "../dom/more_texts.js";
import { writePreference, readPreference } from "../dom/storage.js";
import { signOut, isSignedIn } from "./sign_in.js";
import { notifySwitch } from "../approvals/notifications.js";
import { money } from "./usage.js";
import { applyTheme, applyWidth, THEME, THEMES, WIDTH } from "./theme.js";
import { showPanel } from "./panel.js";

const KEYS = [
  ["Enter", "send the message"],
  ["Shift + Enter", "a new line"],
  ["Alt + A", "go to the waiting call"],
  ["Y, S, E, N", "in a waiting call: approve once, for the session, edit, deny"],
  ["Ctrl + K", "search the conversations"],
  ["Ctrl + Shift + O", "a new conversation"],
  ["Ctrl + B", "hide the list of conversations, or show it"],
  ["Escape", "close what is open"],
  ["Escape, twice", "in the message box: stop the run"],
  ["↑", "in an empty message box: your last message again"],
];

/** Opens the panel, or closes it. */
export function toggle(page, button) {
  return showPanel(page, "settings", "Settings", () => content(page), button);
}

function content(page) {
  const { name, role } = page.store.get("me") ?? {};
  const { version } = page.store.get("server") ?? {};
  const admin = role === "admin";
  return h(
    "div",
    { class: "stack" },
    factList([
      ["Name", name],
      ["Role", ROLES[role] ?? role],
      ["Server", version && `dragoman ${version}`],
    ]),
    isSignedIn() && h("button", { type: "button", onclick: signOut }, t("settings.sign_out")),
    !isSignedIn() &&
      h("p", { class: "faint" }, "This server has no tokens: every user who can reach it on this machine is admin."),
    h("h3", {}, "Appearance"),
    theme(),
    readingWidth(),
    languageChoice(),
    h("h3", {}, "Notifications"),
    notifySwitch(page),
    loadedSection("Push messages and webhooks", () => receivers(page)),
    role !== "guest" && loadedSection("Schedules and triggers", () => automation(page)),
    loadedSection("Used this month", monthly),
    loadedSection("Memory", async () => (await import("./memory/memory_list.js")).memories()),
    role !== "guest" && loadedSection(t("share.mine"), async () => (await page.sessions.links()).sharedLinks(admin)),
    loadedSection("Profiles", async () => (await import("./profiles/profile_list.js")).profiles(admin)),
    admin && loadedSection("Hooks", async () => (await import("./hooks.js")).hooks()),
    isSignedIn() && loadedSection(t("devices.title"), async () => (await import("./people/devices.js")).devices()),
    admin && loadedSection(t("people.title"), async () => (await import("./people/people.js")).people(page)),
    admin && loadedSection("Rules on calls", async () => (await import("./profiles/rule_list.js")).rules()),
    admin && loadedSection(t("audit.title"), async () => (await import("./people/audit.js")).audit()),
    collapsible("Keys", () =>
      h(
        "dl",
        { class: "pairs keys" },
        KEYS.map(([keys, does]) => h("div", {}, h("dt", {}, h("kbd", {}, keys)), h("dd", {}, does))),
      ),
    ),
  );
}

const ROLES = { admin: "admin: full access", user: "user", guest: "guest: can read and chat" };

function theme() {
  const select = h(
    "select",
    { value: readPreference(THEME) ?? "" },
    Object.entries(THEMES).map(([value, name]) => h("option", { value }, name)),
  );
  select.addEventListener("change", () => {
    writePreference(THEME, select.value);
    applyTheme(select.value);
  });
  return field(t("settings.colours"), select);
}

function readingWidth() {
  const names = [
    ["", t("settings.width.comfortable")],
    ["full", t("settings.width.full")],
  ];
  const options = names.map(([value, name]) => h("option", { value }, name));
  const select = h("select", { value: readPreference(WIDTH) ?? "" }, options);
  select.addEventListener("change", () => {
    writePreference(WIDTH, select.value);
    applyWidth(select.value);
  });
  return field(t("settings.width"), select);
}

function languageChoice() {
  const names = { "": t("settings.language.system"), ...LANGUAGES };
  const select = h(
    "select",
    { value: readPreference(LANGUAGE) ?? "" },
    Object.entries(names).map(([value, name]) => h("option", { value, lang: value || undefined }, name)),
  );
  select.addEventListener("change", () => {
    writePreference(LANGUAGE, select.value);
    location.reload(); // the draft and the conversation come back with it
  });
  return field(t("settings.language"), select);
}

/** Webhooks and Web Push, whose code few need. */
const receivers = async (page) => (await import("../notifications/webhooks.js")).receivers(page);

const automation = async (page) => (await import("./automation/schedules.js")).automation(page);

/** A collapsible section whose content is fetched when it is first opened. */
function loadedSection(title, load) {
  return collapsible(title, () => {
    const outcome = new Outcome();
    const ask = async () => fill(box, await load());
    const again = actionButton("Try again", outcome, ask);
    const box = h("div", { class: "stack" }, outcome.element, again);
    runOnce(again, outcome, ask);
    return box;
  });
}

function usedOf(name, used, limit) {
  const told = name === "cost_per_month" ? money : formatNumber;
  return `${told(used)} of ${told(limit)}`;
}

const resetText = (reset) => (reset ? `, resets on ${new Date(reset * 1000).toLocaleDateString()}` : "");

/** Usage of this month's budgets and tokens. */
async function monthly() {
  const { usage, months } = await get("/usage");
  const now = months.at(-1);
  const budget = ([name, { used, limit, reset }]) => [BUDGETS[name], usedOf(name, used, limit) + resetText(reset)];
  const limited = Object.entries(usage).filter(
    ([name, { used, limit }]) => BUDGETS[name] && limit && used !== undefined,
  );
  return h(
    "div",
    { class: "stack" },
    factList([
      ["Month", now?.month ?? "no usage yet"],
      ["Input", now && `${formatNumber(now.prompt_tokens)} tokens`],
      ["Output", now && `${formatNumber(now.completion_tokens)} tokens`],
      ["Cost", now?.cost && money(now.cost)],
      ...(now?.models ?? []).map(({ model, prompt_tokens, completion_tokens }) => [
        model,
        `${formatNumber(prompt_tokens + completion_tokens)} tokens`,
      ]),
    ]),
    limited.length > 0 && h("h4", {}, "Budgets"),
    limited.length > 0 && factList(limited.map(budget)),
  );
}

const BUDGETS = {
  runs: "Concurrent runs",
  tokens_per_month: "Tokens per month",
  cost_per_month: "Cost per month",
  tool_seconds_per_day: "Tool seconds per day",
};
