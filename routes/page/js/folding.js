/** Long blocks that show their first lines until somebody asks for all of them. */

import { h, icon } from "./dom.js";

const LINES = 10;
const CHARACTERS = 1_500;

/** The block; one that holds a long `text` is cut, and has a button that opens and closes it. */
export function folding(block, text) {
  const lines = text.split("\n").length;
  if (lines <= LINES + 2 && text.length <= CHARACTERS) return block;
  const words = lines > LINES + 2 ? `Show all ${lines.toLocaleString()} lines` : "Show all";
  const button = h(
    "button",
    { type: "button", class: "quiet fold-button", "aria-expanded": "false" },
    icon("more"),
    words,
  );
  const box = h("div", { class: "folding" }, block, button);
  button.addEventListener("click", () => {
    const open = box.classList.toggle("open");
    button.lastChild.textContent = open ? "Show less" : words;
    button.setAttribute("aria-expanded", String(open));
  });
  return box;
}
