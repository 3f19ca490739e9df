/** The button of the settings, and what they say of the page's look, which it has from the beginning. */

import { h, icon } from "./dom.js";
import { fetching } from "./forms.js";
import { preferred } from "./kept.js";

export const THEME = "theme"; // light or dark; without it as the system has it
export const THEMES = { "": "Like the system", light: "Light", dark: "Dark" };

dress(preferred(THEME));

export function dress(theme) {
  if (theme && theme in THEMES) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

export function settingsButton(page) {
  const button = h(
    "button",
    {
      type: "button",
      class: "status-item",
      "aria-label": "Settings",
      title: "Settings",
      "aria-expanded": "false",
      onclick: fetching(
        () => import("./settings_panel.js"),
        (panel) => panel.toggle(page, button),
      ),
    },
    icon("gear"),
  );
  return button;
}
