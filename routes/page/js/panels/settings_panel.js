/** The settings panel: identity, theme, usage of the month; for admins tokens and the audit log. */

import { get } from "../feed/api.js";
import { button, fill, h, icon, stack } from "../dom/elements.js";
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
  return showPanel(page, "settings", t("settings.title"), (watch) => settings(page, watch), opener);
}

/** Drawn again when the person is known: by the feed's first event, which a lost connection may delay. */
function settings(page, watch) {
  const box = h("div", { class: "settings" });
  let drawn = null;
  const draw = ({ name, role }) => {
    if (drawn !== `${role} ${name}`) fill(box, content(page, name, role));
    drawn = `${role} ${name}`;
  };
  if (!page.store.get("me")) draw({});
  watch("me", draw);
  return box;
}

function content(page, name, role) {
  const { version } = page.store.get("server") ?? {};
  const admin = role === "admin";
  const isUser = role !== "guest";
  return [
    group(
      t("settings.group.account"),
      factList([
        [t("settings.name"), name],
        [t("settings.role"), ROLES[role] ?? role],
        [t("settings.server"), version && `dragoman ${version}`],
      ]),
      isSignedIn()
        ? h("div", {}, button(t("settings.sign_out"), signOut))
        : h("p", { class: "faint" }, t(!name ? "loading.short" : isLocal(page) ? "settings.open" : "settings.proxied")),
      section("meter", t("settings.month"), monthly),
      isSignedIn() &&
        section("device", t("devices.title"), async () => (await import("./people/devices.js")).devices()),
      isSignedIn() && section("link", t("members.title"), async () => (await import("./people/members.js")).links()),
      isUser && section("upload", t("share.mine"), async () => (await page.sessions.links()).sharedLinks(admin)),
    ),
    group(
      t("settings.appearance"),
      preference(t("settings.colours"), THEME, Object.entries(THEMES), applyTheme),
      preference(t("settings.width"), WIDTH, WIDTHS, applyWidth),
      languageChoice(),
      keyboard(),
    ),
    group(
      t("settings.notifications"),
      notifySwitch(page),
      section("bell", t("settings.receivers"), async () =>
        (await import("../notifications/webhooks.js")).receivers(page),
      ),
    ),
    group(
      t("settings.group.agent"),
      section("book", t("settings.memory"), async () => (await import("./memory/memory_list.js")).memories()),
      isUser &&
        section("clock", t("settings.automation"), async () =>
          (await import("./automation/schedules.js")).automation(page),
        ),
      isUser &&
        section("check", t("permissions.title"), async () => (await import("./people/permissions.js")).permissions()),
      section("sliders", t("settings.profiles"), async () =>
        (await import("./profiles/profile_list.js")).profiles(admin),
      ),
    ),
    admin &&
      group(
        t("settings.group.server"),
        section("people", t("people.title"), async () => (await import("./people/people.js")).people(page)),
        section("ban", t("settings.rules"), async () => (await import("./profiles/rule_list.js")).rules()),
        section("shield", t("safety.title"), async () => (await import("./profiles/safety.js")).guards()),
        section("key", t("settings.secrets"), async () => (await import("./people/secrets.js")).secrets()),
        section("plug", t("settings.hooks"), async () => (await import("./profiles/hooks.js")).hooks()),
        section("file", t("audit.title"), async () => (await import("./people/audit.js")).audit()),
      ),
  ];
}

const SIGNS = {
  meter: "M4 20V10m5.3 10V4m5.4 16v-7M20 20V8",
  device: "M4 5h16v11H4zM9 20h6",
  book: "M5 4h13v16H7a2 2 0 0 1-2-2zm0 14a2 2 0 0 1 2-2h11",
  people:
    "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2.5 20a6.5 6.5 0 0 1 13 0M16 4.5a3.5 3.5 0 0 1 0 6M18 14.5a6.5 6.5 0 0 1 3.5 5.5",
  shield: "M12 3l7 3v5c0 5-3 8-7 10-4-2-7-5-7-10V6z",
  key: "M8 19a4 4 0 1 0 0-8 4 4 0 0 0 0 8zm3-7 8-8m-4 4 3 3",
  keyboard: "M3 6h18v12H3zM7 10h.01M11 10h.01M15 10h.01M8 14h8",
};

/** Rows of one subject below its name. */
const group = (title, ...rows) => h("section", {}, h("h3", {}, title), h("div", { class: "settings-group" }, rows));

/** A row that opens to what `load` fetches. */
function section(sign, title, load) {
  return signed(sign, loadedSection(title, load));
}

function signed(sign, row) {
  row.firstChild.prepend(icon(SIGNS[sign] ?? sign));
  return row;
}

function keyboard() {
  const row = (one) => h("div", {}, h("dt", {}, h("kbd", {}, t(`keys.${one}`))), h("dd", {}, t(`keys.does.${one}`)));
  const keys = () => h("dl", { class: "pairs keys" }, KEYS.map(row));
  return signed("keyboard", collapsible(t("settings.keys"), keys));
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
