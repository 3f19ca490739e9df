/** The sandbox that commands run in: its level in the status bar, and the panel that explains it. */

import { fill, h, icon } from "../dom/elements.js";
import { showPanel } from "./panel.js";
import { t } from "../dom/texts.js";

/** By level: its label in the bar, whether it is a warning, and its explanation. */
const LEVELS = {
  bubblewrap: [t("sandbox.boxed"), false, t("sandbox.bubblewrap.hint")],
  landlock: [t("sandbox.boxed"), false, t("sandbox.landlock.hint")],
  none: [t("sandbox.none"), true, t("sandbox.none.hint")],
  off: [t("sandbox.off"), true, t("sandbox.off.hint")],
};

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
    t("sandbox.title"),
    () =>
      h(
        "div",
        { class: "stack" },
        h("p", {}, h("strong", {}, t("sandbox.level", { level: sandbox }))),
        h("p", { class: warns ? "problem" : null }, meaning),
        open && h("p", {}, t(networked ? "sandbox.networked" : "sandbox.open")),
        h("p", { class: "faint" }, t("sandbox.files")),
      ),
    button,
  );
}
