/**
 * The status bar: model, context usage, and a menu of the rest, of which a button shows what needs attention: a missing
 * sandbox, a failed MCP server, running jobs, a lost connection.
 */

import { button, fill, h, icon, iconButton } from "../dom/elements.js";
import { loadOnce } from "../dom/forms.js";
import { watchGrants } from "./grants.js";
import { Menu } from "../dom/menu.js";
import { isRunning } from "../cards/job_states.js";
import { t, ts } from "../dom/texts.js";
import { isDown } from "./mcp_states.js";
import { currentModel } from "./models.js";
import { pauseBanner, pauseButton } from "./pause.js";
import { sandboxButton } from "./sandbox.js";
import { usageButton } from "./usage.js";

const LINKS = ts("status.link", ["open", "connecting", "lost", "refused"]);
const SLOW_MS = 1_000; // shorter interruptions are not shown

export function start(page) {
  const bar = h("div", { class: "status-bar" });
  const makers = [workspaceButton, jobsButton, mcpButton, grantsButton, sandboxButton, pauseButton];
  const rest = makers.map((make) => make(page));
  const gap = h("span", { class: "status-gap" });
  bar.append(modelButton(page), usageButton(page), gap, ...rest, link(page), ...moreMenu(rest));
  page.at("status").append(bar);
  page.at("composer").before(pauseBanner(page));
}

/** The menu of the buttons that the bar has no room for: it presses them. */
function moreMenu(buttons) {
  const opener = iconButton(t("menu.label"), "more", null, {
    class: "status-item status-menu",
    title: t("status.menu.hint"),
  });
  const row = (item) => [item.textContent, item.querySelector("svg").cloneNode(true), () => item.click()];
  const menu = new Menu(opener, () => buttons.filter(({ hidden }) => !hidden).map(row));
  return [opener, menu.element];
}

/** A button whose panel is loaded when it is first pressed: `load()` imports a module with `toggle(page, opener)`. */
function panelButton(page, load, props, ...children) {
  const toggle = loadOnce(load, (panel) => panel.toggle(page, item));
  const item = button(children, toggle, { class: "status-item", "aria-expanded": "false", ...props });
  return item;
}

function modelButton(page) {
  const words = h("span", { class: "status-model", dir: "auto" });
  const load = () => import("./model_picker.js");
  const item = panelButton(page, load, { class: "status-item status-answers" }, words, icon("down"));
  const draw = () => {
    const { name, endpoint } = currentModel(page);
    const isOther = endpoint && endpoint !== "default";
    const where = isOther && h("span", { class: "faint status-where" }, ` ${endpoint}`);
    fill(words, h("span", { class: "visually-hidden" }, t("status.model"), " "), name ?? "…", where);
    item.title = endpoint ? t("status.model.hint.endpoint", { endpoint }) : t("status.model.hint");
  };
  for (const key of ["server", "model", "endpoints"]) page.store.watch(key, draw);
  return item;
}

/** Hidden where nothing is allowed. */
function grantsButton(page) {
  const words = h("span", {});
  const props = { hidden: true, title: t("status.grants.hint") };
  const button = panelButton(page, () => import("./grants_panel.js"), props, icon("check"), words);
  page.store.watch("grants", (grants) => {
    button.hidden = !grants.length;
    fill(words, `${grants.length}`, ` ${t("status.grants")}`);
  });
  watchGrants(page);
  return button;
}

/** Hidden from users who are not admins: the server sends them no MCP servers. */
function mcpButton(page) {
  const props = { hidden: true, title: t("status.mcp.hint") };
  const button = panelButton(page, () => import("./mcp_panel.js"), props);
  page.store.watch("mcp", (servers) => {
    button.hidden = !servers;
    const held = servers.reduce((sum, one) => sum + one.held.length, 0);
    const down = servers.filter(isDown).length;
    button.dataset.warns = held + down > 0;
    const word = held ? t("status.mcp.held", { held }) : down ? t("status.mcp.down", { down }) : null;
    const all = servers.length ? `MCP: ${servers.length}` : "MCP";
    fill(button, icon(held + down ? "warn" : "plug"), h("span", {}, word ?? all));
  });
  return button;
}

function jobsButton(page) {
  const words = h("span", {}, t("jobs.button"));
  const props = { class: "status-item jobs-button" };
  const button = panelButton(page, () => import("./jobs_panel.js"), props, icon("jobs"), words);
  page.store.watch("jobs", (jobs) => {
    const running = jobs.filter(isRunning).length;
    words.textContent = running ? t("jobs.running", { count: running }) : t("jobs.button");
    button.classList.toggle("busy", running > 0);
  });
  return button;
}

/** Other parts of the page open a file in the panel by the event `open-in-workspace` with its `path`, and `line` or `page`. */
function workspaceButton(page) {
  const load = () => import("../workspace/panel.js");
  const item = panelButton(page, load, {}, icon("folder"), h("span", {}, t("status.workspace")));
  document.addEventListener("open-in-workspace", async ({ detail }) => {
    (await load()).show(page, detail, item);
  });
  return item;
}

/** At the end of the list of conversations. */
export function settingsButton(page) {
  const load = () => import("./settings_panel.js");
  const item = panelButton(page, load, { class: "quiet" }, icon("gear"), t("settings.title"));
  item.addEventListener("click", () => page.drawer.close());
  return item;
}

/** The state of the connection; connection_line.js reports longer interruptions. */
function link(page) {
  const words = h("span", { class: "status-word" });
  const element = h("span", { class: "status-link" }, h("span", { class: "dot", "aria-hidden": "true" }), words);
  let timer = null;
  const draw = ({ state }) => {
    element.dataset.state = state;
    element.title = LINKS[state];
    fill(words, LINKS[state]);
  };
  page.store.watch("connection", (now) => {
    clearTimeout(timer);
    if (now.state === "open" || !element.dataset.state) draw(now);
    else timer = setTimeout(() => draw(now), SLOW_MS);
  });
  return element;
}
