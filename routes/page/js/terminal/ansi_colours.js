/** Terminal colours as CSS classes with a legible contrast: the content security policy forbids inline styles. */

import { BOLD, DIM, INVERSE, ITALIC, rgbOf, STRIKE, UNDERLINE } from "./ansi_style.js";

const MIN_CONTRAST = 4.6; // contrast, a little more than the 4.5 that people need
const MAX_RULES = 2_000; // rules; further colour combinations are not coloured
const FLAG_CLASSES = [
  [BOLD, "bold"],
  [ITALIC, "italic"],
  [UNDERLINE, "underline"],
  [STRIKE, "strike"],
];

const hex = (text) => [1, 3, 5].map((at) => Number.parseInt(text.slice(at, at + 2), 16));
const colours = (text) => text.split(" ").map(hex);
// Inks for light backgrounds and for dark ones: the sixteen colours, and the text of --on-terminal.
const ON_LIGHT = colours(
  "#1c1d1a #a3281e #1a6b34 #7a4a00 #0b55b8 #7a3aa8 #0b656e #50534b " +
    "#62655d #b3332b #1d7339 #805800 #1763c4 #8a45bb #0c6c75 #1c1d1a #1f1e1b",
);
const ON_DARK = colours(
  "#101214 #ff7b72 #7ee787 #e3b341 #79b8ff #d2a8ff #56d4dd #d7dae0 " +
    "#949ca6 #ffa198 #a5f3b0 #f2cc60 #a5d6ff #e2c5ff #8ae8ef #ffffff #d9d7d1",
);
const TEXT = 16; // the place of the text's colour
const BACKGROUNDS = colours(
  "#000000 #98201a #1a6f35 #7a5800 #0b55b8 #7a3aa8 #0b656e #c9cdd4 " +
    "#484f58 #b3332b #1f8a43 #956d00 #1f6fd6 #9450c4 #0f7f8a #ffffff",
);
export const TERMINALS = { light: hex("#f5f3ee"), dark: hex("#100f0e") }; // --terminal

const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
const BRIGHT = NAMES.map((name) => `bright${name[0].toUpperCase()}${name.slice(1)}`);

const sheet = new CSSStyleSheet();
const classes = new Map();
document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];

/** The same sixteen colours by the names of xterm.js, for a background as CSS has it. */
export function screenColours(background) {
  const inks = inksOn(background.match(/\d+/g).slice(0, 3).map(Number));
  return Object.fromEntries([...NAMES, ...BRIGHT].map((name, at) => [name, `rgb(${inks[at].join(",")})`]));
}

/** The classes of a look, "" for a plain one. */
export function classesOf({ fg, bg, flags }) {
  const words = FLAG_CLASSES.filter(([flag]) => flags & flag).map(([, word]) => `ansi-${word}`);
  if (fg !== null || bg !== null || flags & (DIM | INVERSE)) words.push(classOf(fg, bg, flags));
  return words.filter(Boolean).join(" ");
}

function classOf(fg, bg, flags) {
  const key = `${fg},${bg},${flags & (DIM | INVERSE)}`;
  let name = classes.get(key);
  if (name !== undefined || classes.size >= MAX_RULES) return name ?? "";
  name = `ansi-${classes.size}`;
  classes.set(key, name);
  const [light, dark] = [TERMINALS.light, TERMINALS.dark].map((terminal) => coloursOf(fg, bg, flags, terminal));
  const both = (part) => `light-dark(${css(light[part])},${css(dark[part])})`;
  const rule = light.background ? `background-color:${both("background")};` : "";
  sheet.insertRule(`.${name}{color:${both("foreground")};${rule}}`, sheet.cssRules.length);
  return name;
}

/** The colours that are shown in a terminal with this background: `background` is null where it is that one. */
export function coloursOf(fg, bg, flags, terminal) {
  const back = bg === null ? null : colour(BACKGROUNDS, bg);
  const text = fg === null ? inksOn(back ?? terminal)[TEXT] : colour(inksOn(back ?? terminal), fg);
  const [above, under] = flags & INVERSE ? [back ?? terminal, text] : [text, back];
  const background = under ?? terminal;
  const foreground = flags & DIM ? mix(above, background, 0.3) : above;
  return { foreground: legible(foreground, background), background: under };
}

const inksOn = (background) => (isLight(background) ? ON_LIGHT : ON_DARK);
const isLight = (background) => luminance(background) > 0.179;
const colour = (first, number) => (number < 16 ? first[number] : rgbOf(number));

/** The colour, or one closer to white or black that is legible on this background. */
function legible(foreground, background) {
  const end = isLight(background) ? [0, 0, 0] : [255, 255, 255];
  for (let part = 0; part < 1; part += 0.1) {
    const tried = mix(foreground, end, part);
    if (contrast(tried, background) >= MIN_CONTRAST) return tried;
  }
  return end;
}

const mix = (one, other, part) => one.map((value, at) => Math.round(value + (other[at] - value) * part));
const css = (rgb) => `rgb(${rgb.join(" ")})`;

export function contrast(one, other) {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

function luminance(rgb) {
  const [red, green, blue] = rgb.map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
