/** The sandbox that commands run in: its level in the status bar, and the panel that explains it. */

import { button, fill, h, icon, stack } from "../dom/elements.js";
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
  const words = h("span");
  const props = { class: "status-item", "aria-expanded": "false", hidden: true };
  const item = button(null, () => toggle(page, item), props);
  page.store.watch("server", ({ sandbox }) => {
    const [word, warns] = LEVELS[sandbox] ?? [sandbox, true];
    item.hidden = false;
    item.dataset.warns = warns;
    fill(item, icon(warns ? "warn" : "tool"), fill(words, word));
  });
  return item;
}

function toggle(page, opener) {
  const { sandbox, boxed, networked } = page.store.get("server");
  const [, warns, meaning] = LEVELS[sandbox] ?? [sandbox, true, ""];
  const open = boxed === false && !warns;
  const build = () =>
    stack(
      h("p", {}, h("strong", {}, t("sandbox.level", { level: sandbox }))),
      h("p", { class: warns ? "problem" : null }, meaning),
      open && h("p", {}, t(networked ? "sandbox.networked" : "sandbox.open")),
      h("p", { class: "faint" }, t("sandbox.files")),
    );
  return showPanel(page, "sandbox", t("sandbox.title"), build, opener);
}
