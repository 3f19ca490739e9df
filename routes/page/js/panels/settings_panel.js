/** The settings panel: identity, theme, usage of the month; for admins tokens and the audit log. */

import { get } from "../feed/api.js";
import { button, h, stack } from "../dom/elements.js";
import { factList, field, collapsible, formatNumber, select } from "../dom/forms.js";
import { loadedSection } from "./loaded_section.js";
import { LANGUAGE, LANGUAGES, locale, t, ts } from "../dom/more_texts.js";
import { writePreference, readPreference } from "../dom/storage.js";
import { isLocal, isSignedIn, signOut } from "./sign_in.js";
import { notifySwitch } from "../approvals/notifications.js";
import { money } from "./usage.js";
import { applyTheme, applyWidth, THEME, THEMES, WIDTH } from "./theme.js";
import { showPanel } from "./panel.js";

const KEYS = ["send", "line", "waiting", "decide", "search", "new", "list", "close", "stop", "last"];

/** Opens the panel, or closes it. */
export function toggle(page, opener) {
  return showPanel(page, "settings", t("settings.title"), () => content(page), opener);
}

function content(page) {
  const { name, role } = page.store.get("me") ?? {};
  const { version } = page.store.get("server") ?? {};
  const admin = role === "admin";
  const keys = KEYS.map((one) =>
    h("div", {}, h("dt", {}, h("kbd", {}, t(`keys.${one}`))), h("dd", {}, t(`keys.does.${one}`))),
  );
  return stack(
    factList([
      [t("settings.name"), name],
      [t("settings.role"), ROLES[role] ?? role],
      [t("settings.server"), version && `dragoman ${version}`],
    ]),
    isSignedIn()
      ? button(t("settings.sign_out"), signOut)
      : h("p", { class: "faint" }, t(isLocal(page) ? "settings.open" : "settings.proxied")),
    h("h3", {}, t("settings.appearance")),
    preference(t("settings.colours"), THEME, Object.entries(THEMES), applyTheme),
    preference(t("settings.width"), WIDTH, WIDTHS, applyWidth),
    languageChoice(),
    h("h3", {}, t("settings.notifications")),
    notifySwitch(page),
    loadedSection(t("settings.receivers"), async () => (await import("../notifications/webhooks.js")).receivers(page)),
    role !== "guest" &&
      loadedSection(t("settings.automation"), async () => (await import("./automation/schedules.js")).automation(page)),
    role !== "guest" &&
      loadedSection(t("permissions.title"), async () => (await import("./people/permissions.js")).permissions()),
    loadedSection(t("settings.month"), monthly),
    loadedSection(t("settings.memory"), async () => (await import("./memory/memory_list.js")).memories()),
    role !== "guest" && loadedSection(t("share.mine"), async () => (await page.sessions.links()).sharedLinks(admin)),
    loadedSection(t("settings.profiles"), async () => (await import("./profiles/profile_list.js")).profiles(admin)),
    admin && loadedSection(t("settings.hooks"), async () => (await import("./profiles/hooks.js")).hooks()),
    admin && loadedSection(t("settings.secrets"), async () => (await import("./people/secrets.js")).secrets()),
    isSignedIn() && loadedSection(t("devices.title"), async () => (await import("./people/devices.js")).devices()),
    isSignedIn() && loadedSection(t("members.title"), async () => (await import("./people/members.js")).links()),
    admin && loadedSection(t("people.title"), async () => (await import("./people/people.js")).people(page)),
    admin && loadedSection(t("settings.rules"), async () => (await import("./profiles/rule_list.js")).rules()),
    admin && loadedSection(t("safety.title"), async () => (await import("./profiles/safety.js")).guards()),
    admin && loadedSection(t("audit.title"), async () => (await import("./people/audit.js")).audit()),
    collapsible(t("settings.keys"), () => h("dl", { class: "pairs keys" }, keys)),
  );
}

const ROLES = ts("settings.role", ["admin", "user", "guest"]);
const WIDTHS = [
  ["", t("settings.width.comfortable")],
  ["full", t("settings.width.full")],
];

/** A choice that this browser keeps; `apply(value)` follows each change. */
function preference(label, key, rows, apply) {
  const onchange = () => {
    writePreference(key, choice.value);
    apply(choice.value);
  };
  const choice = select(rows, { value: readPreference(key) ?? "", onchange });
  return field(label, choice);
}

function languageChoice() {
  const entry = preference(
    t("settings.language"),
    LANGUAGE,
    Object.entries({ "": t("settings.language.system"), ...LANGUAGES }),
    () => location.reload(), // the draft and the conversation come back with it
  );
  for (const option of entry.querySelectorAll("option")) if (option.value) option.lang = option.value;
  return entry;
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
  const isLimited = ([name, { used, limit }]) => BUDGETS[name] && limit && used !== undefined;
  const limited = Object.entries(usage).filter(isLimited);
  const tokens = (count) => t("usage.tokens", { count });
  const models = now?.models ?? [];
  const facts = factList([
    [t("month.month"), now?.month ?? t("month.none")],
    [t("usage.input"), now && tokens(now.prompt_tokens)],
    [t("usage.output"), now && tokens(now.completion_tokens)],
    [t("usage.cost"), now?.cost && money(now.cost)],
    ...models.map((one) => [one.model, tokens(one.prompt_tokens + one.completion_tokens)]),
  ]);
  return stack(facts, limited.length > 0 && [h("h4", {}, t("month.budgets")), factList(limited.map(budget))]);
}

const BUDGETS = ts("month.budget", ["runs", "tokens_per_month", "cost_per_month", "tool_seconds_per_day"]);
