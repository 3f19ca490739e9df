/** The sandbox that commands run in: its level in the status bar, and the panel that explains it. */

import { fill, h, icon } from "../dom/elements.js";
import { showPanel } from "./panel.js";

/** By level: its label in the bar, whether it is a warning, and its explanation. */
const LEVELS = {
  bubblewrap: [
    "Sandboxed",
    false,
    "Commands run in a bubblewrap sandbox: they can read the system and write only in the workspace; they see no home folder, no other processes and none of the server's secrets, and have no network access but what a call requests.",
  ],
  landlock: [
    "Sandboxed",
    false,
    "Commands run in a sandbox of the kernel's Landlock: they can read the system and write only in the workspace, cannot open other files and have no network access.",
  ],
  none: [
    "No sandbox",
    true,
    "Commands run without a sandbox: they can do everything that the server's account can. Every command that is not explicitly allowed requires approval. Read it before you approve.",
  ],
  off: [
    "Commands off",
    true,
    "This machine has no working sandbox, so bash and python are disabled. Install bubblewrap and restart the server.",
  ],
};
const OPEN = "On this server the sandbox is incomplete, so commands require approval.";
const NETWORKED =
  "On this server every command can reach public hosts through a proxy, never this machine's own services, and requires approval once the conversation contains untrusted text.";

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
          "File tools work only inside the workspace. The server determines the level at startup.",
        ),
      ),
    button,
  );
}
