/** The colour theme of the page (light, dark, or the system's) and its reading width. Applied when this module loads. */

import { readPreference } from "../dom/storage.js";
import { t, ts } from "../dom/texts.js";

export const THEME = "theme"; // the preference: light or dark; without it the system decides
export const THEMES = { "": t("theme.system"), ...ts("theme", ["light", "dark"]) };

export const WIDTH = "width"; // the preference: full; without it lines have a comfortable length

applyTheme(readPreference(THEME));
applyWidth(readPreference(WIDTH));

export function applyTheme(theme) {
  if (theme && theme in THEMES) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

export function applyWidth(width) {
  if (width === "full") document.documentElement.dataset.width = width;
  else delete document.documentElement.dataset.width;
}
