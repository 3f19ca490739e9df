/** The colour theme of the page: light, dark, or the system's. Applied when this module loads. */

import { readPreference } from "../dom/storage.js";

export const THEME = "theme"; // the preference: light or dark; without it the system decides
export const THEMES = { "": "System", light: "Light", dark: "Dark" };

applyTheme(readPreference(THEME));

export function applyTheme(theme) {
  if (theme && theme in THEMES) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}
