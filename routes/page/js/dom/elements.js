/** Creates DOM elements from data. Text stays text: no code on the page parses a string as HTML. */

import { guarded } from "./errors.js";

const SVG = "http://www.w3.org/2000/svg";

/**
 * `h("button", {class: "quiet", onclick, "aria-label": "Stop"}, "Stop", icon("stop"))`. Names that begin with `on` are
 * listeners, `dataset` and `value` are properties, all others are attributes; null, undefined and false are skipped.
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  const { value, dataset, ...others } = props ?? {};
  for (const [name, given] of Object.entries(others)) {
    if (missing(given)) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), given);
    else element.setAttribute(name, given === true ? "" : String(given));
  }
  for (const [name, given] of Object.entries(dataset ?? {})) if (!missing(given)) element.dataset[name] = given;
  element.append(...present(children));
  if (!missing(value)) element.value = value; // behind the children: a select has it only then
  return element;
}

/** Replaces all children. */
export function fill(element, ...children) {
  element.replaceChildren(...present(children));
  return element;
}

/** A button that submits no form. `label` may be several children, such as an icon and a text. */
export const button = (label, onclick, props = {}) => h("button", { type: "button", onclick, ...props }, label);

/** A quiet button that shows only an icon: its name is its label and its tooltip. */
export const iconButton = (name, sign, onclick, props = {}) =>
  button(icon(sign), onclick, { class: "quiet", "aria-label": name, title: name, ...props });

/** Buttons side by side. */
export const buttonRow = (...children) => h("div", { class: "buttons" }, children);

/** The buttons at the end of a dialog. */
export const dialogButtons = (...children) => h("div", { class: "dialog-buttons" }, children);

/** Elements below each other. */
export const stack = (...children) => h("div", { class: "stack" }, children);

const missing = (given) => given === null || given === undefined || given === false;
const present = (children) => children.flat(Infinity).filter((child) => !missing(child));

const ICONS = {
  send: "M12 19V5m-6 6 6-6 6 6",
  stop: "M6 6h12v12H6z",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "m5 13 4 4L19 7",
  cross: "m6 6 12 12M18 6 6 18",
  more: "M4.4 12a.6.6 0 1 0 1.2 0a.6.6 0 1 0-1.2 0M11.4 12a.6.6 0 1 0 1.2 0a.6.6 0 1 0-1.2 0M18.4 12a.6.6 0 1 0 1.2 0a.6.6 0 1 0-1.2 0",
  down: "m6 9 6 6 6-6",
  up: "m6 15 6-6 6 6",
  right: "m9 6 6 6-6 6",
  left: "m15 6-6 6 6 6",
  again: "M4 12a8 8 0 1 1 2.3 5.6M4 20v-5h5",
  columns: "M4 5h6.5v14H4zM13.5 5H20v14h-6.5z",
  upload: "M12 16V5M7 10l5-5 5 5M5 20h14",
  renew: "M19 8a8 8 0 1 0 1 6M20 4v5h-5",
  plus: "M12 5v14M5 12h14",
  menu: "M4 7h16M4 12h16M4 17h16",
  clip: "m20 11-8.5 8.5a5 5 0 0 1-7-7L13 4a3.3 3.3 0 0 1 4.7 4.7L9.3 17a1.7 1.7 0 0 1-2.4-2.4L14.5 7",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zm10 3-5-5",
  tool: "m5 8 4 4-4 4M12 16h7",
  clock: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zm0-13v4l3 2",
  warn: "M12 4 2.5 20h19zM12 10v4m0 3h.01",
  pencil: "M4 20h4L19 9l-4-4L4 16z",
  bin: "M5 7h14M10 7V4h4v3m-7 0 1 13h8l1-13",
  save: "M12 4v11m-5-4 5 5 5-5M5 20h14",
  gear:
    "M12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM10.5 3h3l.5 2.6 1.9 1.1 2.5-.9 1.5 2.6-2 1.7v2.2l2 1.7-1.5 2.6-2.5-.9-1.9 1.1" +
    "-.5 2.6h-3l-.5-2.6-1.9-1.1-2.5.9-1.5-2.6 2-1.7v-2.2l-2-1.7 1.5-2.6 2.5.9L10 5.6z",
  sliders: "M4 7h9m4 0h3M4 17h3m4 0h9M15 5v4M9 15v4",
  bell: "M6 16V11a6 6 0 1 1 12 0v5l2 2H4zm4 4h4",
  jobs: "M4 6h16v12H4zm3 4 3 2.5L7 15m5 0h5",
  plug: "M9 3v5m6-5v5M6 8h12v3a6 6 0 0 1-12 0zm6 9v4",
  pause: "M8 5v14M16 5v14",
  play: "M7 4.5v15l12-7.5z",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  folder: "M3 6h6l2 2h10v11H3z",
  sidebar: "M4 5h16v14H4zM9 5v14",
  archive: "M4 5h16v4H4zM5 9v10h14V9m-9 4h4",
  pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
  link: "M10 14a4 4 0 0 0 6 0l3-3a4 4 0 0 0-6-6l-1 1m2 4a4 4 0 0 0-6 0l-3 3a4 4 0 0 0 6 6l1-1",
  globe: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM3 12h18M12 3c5 5 5 13 0 18M12 3c-5 5-5 13 0 18",
  outline: "M4 6h16M9 12h11M9 18h11M4.5 12h.01M4.5 18h.01",
  info: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zm0-10v6m0-9h.01",
  bulb: "M9.5 18h5m-4 3h3M9 15c-.3-1.6-3-3-3-6a6 6 0 1 1 12 0c0 3-2.7 4.4-3 6z",
  ban: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM5.7 5.7l12.6 12.6",
};

/** A decorative icon, by its name or as a path, hidden from screen readers: a button without text needs a label. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name] ?? (name[0] === "M" ? name : ICONS.more));
  svg.append(path);
  return svg;
}

const HIDDEN_MS = 250;
const due = new Set();
let scheduled = false;

/** Runs `draw` once before the next frame, however often it is requested: no layout per token. */
export function onNextFrame(draw) {
  due.add(draw);
  if (scheduled) return;
  scheduled = true;
  // A hidden tab gets no animation frames; its updates must not pile up.
  if (document.hidden) setTimeout(drawAll, HIDDEN_MS);
  else requestAnimationFrame(drawAll);
}

function drawAll() {
  scheduled = false;
  const now = [...due];
  due.clear();
  for (const draw of now) guarded(draw);
}

document.addEventListener("visibilitychange", () => {
  if (due.size) drawAll();
});

const ANNOUNCE_MS = 150; // screen readers ignore a region that is emptied and filled at once
const pending = { polite: [], urgent: [] };

/** Announces a text to screen readers. Call it once for a finished event, never for each piece of it. */
export function announce(words, { urgent = false } = {}) {
  const name = urgent ? "urgent" : "polite";
  if (pending[name].push(words) > 1) return;
  const region = document.getElementById(name);
  region.textContent = "";
  setTimeout(() => (region.textContent = [...new Set(pending[name].splice(0))].join(" ")), ANNOUNCE_MS);
}

/** Moves the focus to `element`, or to the message box if it was removed. */
export function restoreFocus(element) {
  if (element?.isConnected && element !== document.body) element.focus();
  if (document.activeElement === document.body) focusMessageBox();
}

const HOVERS = matchMedia("(hover: hover)");

/** Focuses the message box, or its form on a touch screen: the text would open the keyboard. */
export function focusMessageBox() {
  document.getElementById(HOVERS.matches ? "composer-text" : "composer")?.focus({ preventScroll: true });
}

/** Whether a selection begins in the element: redrawing would clear it. */
export function hasSelection(element) {
  // `Selection.isCollapsed` would force a layout of the whole page.
  const { anchorNode, anchorOffset, focusNode, focusOffset } = document.getSelection();
  return element.contains(anchorNode) && (anchorNode !== focusNode || anchorOffset !== focusOffset);
}

let dialogs = 0;

/**
 * A dialog in the middle, by `<dialog>`: focus stays in it, Escape closes it. Resolves with what `close(value)` gets,
 * undefined if the dialog was dismissed. `build(close)` returns an element or several.
 */
export function dialog(title, build) {
  const opener = document.activeElement;
  return new Promise((resolve) => {
    const heading = h("h2", { id: `dialog-${++dialogs}` }, title);
    const box = h("dialog", { class: "dialog", "aria-labelledby": heading.id });
    let given;
    const close = (value) => {
      given = value;
      box.close();
    };
    // Browsers may close it themselves, and do not always ask before.
    box.addEventListener("close", () => {
      box.remove();
      resolve(given);
      restoreFocus(opener);
    });
    box.append(heading, ...[build(close)].flat());
    document.body.append(box);
    box.showModal();
  });
}

/** A dialog about something that cannot be undone: resolves with true for `yes`. `no` has the focus. */
export function confirmDialog(title, content, { no, yes }) {
  return dialog(title, (close) => [
    ...content,
    dialogButtons(
      button(no, () => close(false), { autofocus: true }),
      button(yes, () => close(true), { class: "danger" }),
    ),
  ]);
}
