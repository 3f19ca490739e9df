/** The size of the window in which cards show what commands print, as the server gives it to their terminals. */

import { h } from "../dom/elements.js";

const LETTERS = 100; // measured together: one alone may be rounded
const LEAST = 80; // a narrower card scrolls
const MOST = 400; // that the server takes
const ROWS = 40;

/** As cards in `list` have it. */
export function windowSize(list) {
  const letters = h("span", {}, "0".repeat(LETTERS));
  const tail = h("div", { class: "tail" }, letters);
  const probe = h("div", { class: "tail-box window-probe", "aria-hidden": "true" }, tail);
  // Not in the conversation: the browser would style and lay out all turns anew.
  probe.style.setProperty("width", `${list.clientWidth}px`);
  document.body.append(probe);
  const { paddingLeft, paddingRight } = getComputedStyle(tail);
  const room = tail.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
  const columns = Math.floor((room * LETTERS) / letters.getBoundingClientRect().width);
  probe.remove();
  return { columns: Math.max(LEAST, Math.min(MOST, columns || LEAST)), rows: ROWS };
}
