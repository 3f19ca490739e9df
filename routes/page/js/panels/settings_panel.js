/** The settings panel: identity, theme, usage of the month; for admins tokens and the audit log. */

import { get } from "../feed/api.js";
import { fill, h } from "../dom/elements.js";
import { Outcome, actionButton, runOnce, factList, field, collapsible, formatNumber } from "../dom/forms.js";
import { LANGUAGE, LANGUAGES, locale, t, ts } from "../dom/more_texts.js";
import { writePreference, readPreference } from "../dom/storage.js";
import { signOut, isSignedIn } from "./sign_in.js";
import { notifySwitch } from "../approvals/notifications.js";
import { money } from "./usage.js";
import { applyTheme, applyWidth, THEME, THEMES, WIDTH } from "./theme.js";
import { showPanel } from "./panel.js";

const KEYS = ["send", "line", "waiting", "decide", "search", "new", "list", "close", "stop", "last"];

/** Opens the panel, or closes it. */
export function toggle(page, button) {
  return showPanel(page, "settings", t("settings.title"), () => content(page), button);
}

function content(page) {
  const { name, role } = page.store.get("me") ?? {};
  const { version } = page.store.get("server") ?? {};
  const admin = role === "admin";
  return h(
    "div",
    { class: "stack" },
    factList([
      [t("settings.name"), name],
      [t("settings.role"), ROLES[role] ?? role],
      [t("settings.server"), version && `dragoman ${version}`],
    ]),
    isSignedIn() && h("button", { type: "button", onclick: signOut }, t("settings.sign_out")),
    !isSignedIn() && h("p", { class: "faint" }, t("settings.open")),
    h("h3", {}, t("settings.appearance")),
    theme(),
    readingWidth(),
    languageChoice(),
    h("h3", {}, t("settings.notifications")),
    notifySwitch(page),
    loadedSection(t("settings.receivers"), () => receivers(page)),
    role !== "guest" && loadedSection(t("settings.automation"), () => automation(page)),
    loadedSection(t("settings.month"), monthly),
    loadedSection(t("settings.memory"), async () => (await import("./memory/memory_list.js")).memories()),
    role !== "guest" && loadedSection(t("share.mine"), async () => (await page.sessions.links()).sharedLinks(admin)),
    loadedSection(t("settings.profiles"), async () => (await import("./profiles/profile_list.js")).profiles(admin)),
    admin && loadedSection(t("settings.hooks"), async () => (await import("./hooks.js")).hooks()),
    isSignedIn() && loadedSection(t("devices.title"), async () => (await import("./people/devices.js")).devices()),
    admin && loadedSection(t("people.title"), async () => (await import("./people/people.js")).people(page)),
    admin && loadedSection(t("settings.rules"), async () => (await import("./profiles/rule_list.js")).rules()),
    admin && loadedSection(t("audit.title"), async () => (await import("./people/audit.js")).audit()),
    collapsible(t("settings.keys"), () =>
      h(
        "dl",
        { class: "pairs keys" },
        KEYS.map((one) =>
          h("div", {}, h("dt", {}, h("kbd", {}, t(`keys.${one}`))), h("dd", {}, t(`keys.does.${one}`))),
        ),
      ),
    ),
  );
}

const ROLES = ts("settings.role", ["admin", "user", "guest"]);

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
    const again = actionButton(t("settings.again"), outcome, ask);
    const box = h("div", { class: "stack" }, outcome.element, again);
    runOnce(again, outcome, ask);
    return box;
  });
}

function usedOf(name, { used, limit, reset }) {
  const words = name === "cost_per_month" ? money : formatNumber;
  const values = { used: words(used), limit: words(limit) };
  if (!reset) return t("month.used", values);
  return t("month.used.reset", { ...values, date: new Date(reset * 1000).toLocaleDateString(locale) });
}

/** Usage of this month's budgets and tokens. */
async function monthly() {
  const { usage, months } = await get("/usage");
  const now = months.at(-1);
  const budget = ([name, state]) => [BUDGETS[name], usedOf(name, state)];
  const limited = Object.entries(usage).filter(
    ([name, { used, limit }]) => BUDGETS[name] && limit && used !== undefined,
  );
  return h(
    "div",
    { class: "stack" },
    factList([
      [t("month.month"), now?.month ?? t("month.none")],
      [t("usage.input"), now && t("usage.tokens", { count: now.prompt_tokens })],
      [t("usage.output"), now && t("usage.tokens", { count: now.completion_tokens })],
      [t("usage.cost"), now?.cost && money(now.cost)],
      ...(now?.models ?? []).map(({ model, prompt_tokens, completion_tokens }) => [
        model,
        t("usage.tokens", { count: prompt_tokens + completion_tokens }),
      ]),
    ]),
    limited.length > 0 && h("h4", {}, t("month.budgets")),
    limited.length > 0 && factList(limited.map(budget)),
  );
}

const BUDGETS = ts("month.budget", ["runs", "tokens_per_month", "cost_per_month", "tool_seconds_per_day"]);
