/** The panel that explains the sandbox in which commands run. */

import { h } from "../dom/elements.js";
import { showPanel } from "./panel.js";

/** By level: whether it is a warning, and its explanation. */
const LEVELS = {
  bubblewrap: [
    false,
    "Commands run in a bubblewrap sandbox: they can read the system and write only in the workspace; they see no home folder, no other processes and none of the server's secrets, and have no network access but what a call requests.",
  ],
  landlock: [
    false,
    "Commands run in a sandbox of the kernel's Landlock: they can read the system and write only in the workspace, cannot open other files and have no network access.",
  ],
  none: [
    true,
    "Commands run without a sandbox: they can do everything that the server's account can. Every command that is not explicitly allowed requires approval. Read it before you approve.",
  ],
  off: [
    true,
    "This machine has no working sandbox, so bash and python are disabled. Install bubblewrap and restart the server.",
  ],
};
const OPEN = "On this server the sandbox is incomplete, so commands require approval.";
const NETWORKED =
  "On this server every command can reach public hosts through a proxy, never this machine's own services, and requires approval once the conversation contains untrusted text.";

export function toggle(page, button) {
  const { sandbox, boxed, networked } = page.store.get("server");
  const [warns, meaning] = LEVELS[sandbox] ?? [true, ""];
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
