/** What an app learns of its host: theme and style variables, language, time zone. */

import { locale } from "../dom/more_texts.js";

const DARK = matchMedia("(prefers-color-scheme: dark)");
// The extension's variables, each with one of our tokens or a value.
const STATES = "info:own danger:bad success:good warning:wait";
const SOFT = STATES.replace(/(?= |$)/g, "-soft");
const VARIABLES = {
  "--color-background-": `primary:surface secondary:back tertiary:raised inverse:text disabled:raised ghost:transparent ${SOFT}`,
  "--color-text-": `primary:text secondary:faint tertiary:faint inverse:back disabled:faint ghost:faint ${STATES}`,
  "--color-border-": `primary:line secondary:line tertiary:line inverse:text disabled:line ghost:transparent ${STATES}`,
  "--color-ring-": `primary:accent secondary:line inverse:back ${STATES}`,
  "--font-": "sans:sans mono:mono weight-normal:400 weight-medium:500 weight-semibold:600 weight-bold:700",
  "--font-text-": "xs-size:tiny sm-size:small md-size:body lg-size:title",
  "--font-heading-":
    "xs-size:small sm-size:ui md-size:body lg-size:title xl-size:title 2xl-size:display 3xl-size:display",
  "--border-":
    "radius-xs:round-s radius-sm:round-s radius-md:round radius-lg:round-l radius-xl:round-l radius-full:pill",
  "--shadow-": "sm:shadow md:shadow lg:shadow",
};

/** The colours and sizes of the page as it is. */
export function lookOf() {
  const style = getComputedStyle(document.documentElement);
  const variables = {};
  for (const [kind, names] of Object.entries(VARIABLES))
    for (const [, name, token] of names.matchAll(/(\S+):(\S+)/g))
      variables[kind + name] = style.getPropertyValue(`--${token}`).trim() || token;
  return { theme: document.documentElement.dataset.theme ?? (DARK.matches ? "dark" : "light"), styles: { variables } };
}

/** All but what concerns the one frame. */
export const hostContext = () => ({
  ...lookOf(),
  ...{ locale, timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone, userAgent: "dragoman", platform: "web" },
  deviceCapabilities: { touch: navigator.maxTouchPoints > 0, hover: matchMedia("(hover: hover)").matches },
  availableDisplayModes: ["inline", "fullscreen"],
});

/** Calls `changed()` whenever the theme is another one, until `signal`. */
export function watchLook(changed, signal) {
  const observer = new MutationObserver(changed);
  observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  signal.addEventListener("abort", () => observer.disconnect());
  DARK.addEventListener("change", changed, { signal });
}
