/** The bar at the bottom: model, context, tokens and cost, what is allowed, sandbox, MCP, jobs, connection, pause, settings. */

import { fill, h, icon } from "./dom.js";
import { fetching, showPanel } from "./forms.js";
import { grantsButton } from "./grants.js";
import { jobsButton } from "./jobs.js";
import { mcpButton } from "./mcp.js";
import { answering } from "./models.js";
import { pauseBanner, pauseButton } from "./pause.js";
import { settingsButton } from "./settings.js";
import { usageButton } from "./spending.js";

const LINKS = { open: "Connected", connecting: "Connecting", lost: "Not connected", refused: "Refused" };
const SLOW_MS = 1_000; // shorter breaks are nobody's business

export function start(page) {
  const bar = h("div", { class: "status-bar" });
  bar.append(
    modelButton(page),
    usageButton(page),
    h("span", { class: "status-gap" }),
    grantsButton(page),
    sandboxButton(page),
    mcpButton(page),
    jobsButton(page),
    link(page),
    pauseButton(page),
    settingsButton(page),
  );
  page.at("status").append(bar);
  page.at("composer").before(pauseBanner(page));
}

function modelButton(page) {
  const words = h("span", { class: "status-model", dir: "auto" });
  const button = h(
    "button",
    {
      type: "button",
      class: "status-item status-answers",
      "aria-expanded": "false",
      onclick: fetching(
        () => import("./model_picker.js"),
        (picker) => picker.togglePicker(page, button),
      ),
    },
    words,
    icon("down"),
  );
  const draw = () => {
    const { name, endpoint } = answering(page);
    fill(
      words,
      h("span", { class: "unseen" }, "Model: "),
      name ?? "…",
      endpoint && endpoint !== "default" && h("span", { class: "faint status-where" }, ` ${endpoint}`),
    );
    button.title = `Which model answers${endpoint ? `: of ${endpoint}` : ""}`;
  };
  for (const key of ["server", "model", "endpoints"]) page.store.watch(key, draw);
  return button;
}

/** By level: a word for the bar, whether it is a warning, and what it means. */
const LEVELS = {
  bubblewrap: [
    "Sandboxed",
    false,
    "Commands run in a box made by bubblewrap: they read the system, write in the workspace only, and see no home folder, no other process, no network but what a call asks for, and none of the server's secrets.",
  ],
  landlock: [
    "Sandboxed",
    false,
    "Commands run in a box made by the kernel's Landlock: they read the system, write in the workspace only, open nothing else and have no network.",
  ],
  none: [
    "No sandbox",
    true,
    "Commands run without protection: they can do whatever the server's user can. So each one but the allowed ones asks first. Read before you approve.",
  ],
  off: [
    "Commands off",
    true,
    "This machine has no working sandbox, so bash and python are off. Install bubblewrap on it and start the server again.",
  ],
};
const OPEN = "Here the box is open in part, so commands ask first.";
const NETWORKED =
  "Here every command may reach public hosts through a proxy, never this machine's own services, and asks once the conversation holds untrusted text.";

function sandboxButton(page) {
  const words = h("span", { class: "status-brief" });
  const button = h("button", {
    type: "button",
    class: "status-item",
    "aria-expanded": "false",
    hidden: true,
    onclick: () => toggleSandbox(page, button),
  });
  page.store.watch("server", ({ sandbox }) => {
    const [word, warns] = LEVELS[sandbox] ?? [sandbox, true];
    button.hidden = false;
    button.dataset.warns = warns;
    fill(button, icon(warns ? "warn" : "tool"), fill(words, word));
  });
  return button;
}

function toggleSandbox(page, button) {
  const { sandbox, boxed, networked } = page.store.get("server");
  const [, warns, meaning] = LEVELS[sandbox] ?? [sandbox, true, ""];
  const open = boxed === false && !warns;
  return showPanel(
    page,
    "sandbox",
    "Where commands run",
    () =>
      h(
        "div",
        { class: "stack" },
        h("p", {}, h("strong", {}, `Level: ${sandbox}`)),
        h("p", { class: warns ? "problem" : null }, meaning),
        open && h("p", {}, networked ? NETWORKED : OPEN),
        h(
          "p",
          { class: "faint" },
          "File tools work in the workspace and cannot leave it. The server decides the level when it starts.",
        ),
      ),
    button,
  );
}

/** A dot and a word; what is to be done is said at the top when it lasts. */
function link(page) {
  const words = h("span", { class: "status-word" });
  const element = h("span", { class: "status-link" }, h("span", { class: "dot", "aria-hidden": "true" }), words);
  let timer = null;
  const draw = ({ state }) => {
    element.dataset.state = state;
    element.title = LINKS[state];
    fill(words, LINKS[state]);
  };
  page.store.watch("link", (now) => {
    clearTimeout(timer);
    if (now.state === "open" || !element.dataset.state) draw(now);
    else timer = setTimeout(() => draw(now), SLOW_MS);
  });
  return element;
}
