/** Colours of a terminal as classes: no element has a style of its own, and every pair of colours can be read. */

import { BOLD, DIM, INVERSE, ITALIC, rgbOf, STRIKE, UNDERLINE } from "./ansi_style.js";

const BACK = [0x15, 0x17, 0x1a]; // --terminal in light mode; in dark mode it is darker still
const FRONT = [0xd7, 0xda, 0xe0]; // --on-terminal
const ENOUGH = 4.6; // contrast, a little more than the 4.5 that people need
const MOST = 2_000; // rules; what comes after them has no colour
const WORDS = [
  [BOLD, "bold"],
  [ITALIC, "italic"],
  [UNDERLINE, "underline"],
  [STRIKE, "strike"],
];

const hex = (text) => [1, 3, 5].map((at) => Number.parseInt(text.slice(at, at + 2), 16));
const INKS = (
  "#101214 #ff7b72 #7ee787 #e3b341 #79b8ff #d2a8ff #56d4dd #d7dae0 " +
  "#949ca6 #ffa198 #a5f3b0 #f2cc60 #a5d6ff #e2c5ff #8ae8ef #ffffff"
)
  .split(" ")
  .map(hex);
const PAPERS = (
  "#000000 #98201a #1a6f35 #7a5800 #0b55b8 #7a3aa8 #0b656e #c9cdd4 " +
  "#484f58 #b3332b #1f8a43 #956d00 #1f6fd6 #9450c4 #0f7f8a #ffffff"
)
  .split(" ")
  .map(hex);

const sheet = new CSSStyleSheet();
const classes = new Map();
document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];

/** The classes of a look, "" for a plain one. */
export function classesOf({ fg, bg, flags }) {
  const words = WORDS.filter(([flag]) => flags & flag).map(([, word]) => `ink-${word}`);
  if (fg !== null || bg !== null || flags & (DIM | INVERSE)) words.push(coloured(fg, bg, flags));
  return words.filter(Boolean).join(" ");
}

function coloured(fg, bg, flags) {
  const key = `${fg},${bg},${flags & (DIM | INVERSE)}`;
  let name = classes.get(key);
  if (name !== undefined || classes.size >= MOST) return name ?? "";
  name = `ink-${classes.size}`;
  classes.set(key, name);
  const { ink, paper } = inked(fg, bg, flags);
  const background = paper ? `background-color:${css(paper)};` : "";
  sheet.insertRule(`.${name}{color:${css(ink)};${background}}`, sheet.cssRules.length);
  return name;
}

/** The colours that are shown: `paper` is null where it is the terminal's own. */
export function inked(fg, bg, flags) {
  const inverse = Boolean(flags & INVERSE);
  const under = inverse ? (fg === null ? FRONT : colour(INKS, fg)) : bg === null ? null : colour(PAPERS, bg);
  const above = inverse ? (bg === null ? BACK : colour(PAPERS, bg)) : fg === null ? FRONT : colour(INKS, fg);
  const paper = under ?? BACK;
  const ink = flags & DIM ? mix(above, paper, 0.3) : above;
  return { ink: legible(ink, paper), paper: under };
}

const colour = (first, number) => (number < 16 ? first[number] : rgbOf(number));

/** The same ink, or one towards white or black that can be read on this paper. */
function legible(ink, paper) {
  const end = luminance(paper) > 0.179 ? [0, 0, 0] : [255, 255, 255];
  for (let part = 0; part < 1; part += 0.1) {
    const tried = mix(ink, end, part);
    if (contrast(tried, paper) >= ENOUGH) return tried;
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
