/**
 * Draws formulas. Temml makes MathML of TeX, which browsers draw themselves: two thirds of KaTeX's bytes, no fonts for
 * each kind of sign, and no styles that the page's policy would have to allow. It is fetched with the first formula.
 */

import { h } from "../dom/elements.js";
import { library, libraryFont } from "../dom/library.js";
import { forEachInSlices, yieldToBrowser } from "../dom/scheduling.js";
import { escapeCode } from "./escape_invisible.js";

const LONGEST = 4_000; // characters
const KEPT = 2_000; // formulas: a paragraph that is being written is drawn again and again
const LIMITS = { maxSize: [20, 100], maxExpand: 300 };
const DEFINES = /\\[a-z]*(?:def|command|let|operator)|csname/i;
const MOST_EXPANDED = 3_000; // characters that macros of a formula's own can make of it
const UNWANTED = ["id", "href", "src"]; // names of the page's own parts, and what leads elsewhere

let temml = null;
const waiting = [];
let isDrawing = false;
const drawn = new Map();

/** Fetches what draws formulas. Rejects if that cannot be loaded. */
export async function ready() {
  if (temml) return;
  const loaded = await library("temml/temml.min.js", { style: "temml/Temml-Local.css" });
  if (temml) return;
  document.addEventListener("copy", hideWhileCopied);
  libraryFont("Page Math", "noto-sans-math/noto-sans-math.woff2"); // css/messages.css prefers installed ones
  temml = loaded;
}

/** Browsers copy the ends of lines out of a formula that nobody can select, unless it is not there. */
function hideWhileCopied() {
  document.documentElement.classList.add("copying");
  requestAnimationFrame(() => document.documentElement.classList.remove("copying"));
}

/** An element with the formula, if it was drawn before. What is selected and copied is the source. */
export function drawnFormula(written, tex, display) {
  const math = drawn.get(keyOf(tex, display))?.cloneNode(true);
  if (!math) return null;
  const source = h("span", { class: "math-source", "aria-hidden": "true" }, written);
  const props = { class: display ? "math-drawn math-display" : "math-drawn", dir: "ltr" };
  return h("span", props, source, h("span", { class: "math-box" }, math));
}

/** Replaces `element`, which shows the source, when there is time. Where the formula has a mistake, it stays. */
export function drawLater(wanted) {
  waiting.push(wanted);
  if (!isDrawing) drawAll();
}

async function drawAll() {
  isDrawing = true;
  while (waiting.length) {
    await yieldToBrowser();
    await forEachInSlices(waiting.splice(0), draw);
  }
  isDrawing = false;
}

function draw({ element, written, tex, display }) {
  const key = keyOf(tex, display);
  if (!drawn.has(key)) keep(key, parsed(tex, display));
  if (element.isConnected) element.replaceWith(drawnFormula(written, tex, display) ?? element);
}

const keyOf = (tex, display) => `${display} ${tex}`;

function keep(key, math) {
  if (drawn.size >= KEPT) drawn.delete(drawn.keys().next().value);
  drawn.set(key, math);
}

/** The `<math>` of a formula, or null. Temml throws errors of several kinds, and the browser where braces lie deep. */
function parsed(tex, displayMode) {
  if (tex.length > LONGEST || !tex.trim()) return null;
  const holder = h("span");
  try {
    const own = DEFINES.test(tex) && { maxExpand: Math.floor(MOST_EXPANDED / tex.length) };
    const wrap = displayMode ? "none" : "tex";
    temml.render(escapeCode(tex), holder, { ...LIMITS, ...own, displayMode, wrap, throwOnError: true, trust: false });
  } catch {
    return null;
  }
  for (const part of holder.querySelectorAll("*")) for (const name of UNWANTED) part.removeAttribute(name);
  return holder.firstElementChild;
}
