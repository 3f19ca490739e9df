/** The sandbox that commands run in: its level in the status bar, and the panel that explains it. */

import { fill, h, icon } from "../dom/elements.js";
import { showPanel } from "./panel.js";

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

export function sandboxButton(page) {
  const words = h("span", { class: "status-brief" });
  const button = h("button", {
    type: "button",
    class: "status-item",
    "aria-expanded": "false",
    hidden: true,
    onclick: () => toggle(page, button),
  });
  page.store.watch("server", ({ sandbox }) => {
    const [word, warns] = LEVELS[sandbox] ?? [sandbox, true];
    button.hidden = false;
    button.dataset.warns = warns;
    fill(button, icon(warns ? "warn" : "tool"), fill(words, word));
  });
  return button;
}

function toggle(page, button) {
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
