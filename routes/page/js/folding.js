/** Long texts that show their first lines until somebody asks for all of them. */

import { h, icon } from "./dom.js";
import { spelled } from "./exact.js";

const LINES = 10;
const CHARACTERS = 1_500;
const FOLDED = 4_000; // characters that are laid out of a folded one
const MOST = 200_000; // and of an open one

/** The block with this text, spelled out; if it is long, with a button that shows all of it and folds it again. */
export function folding(block, text) {
  const lines = text.split("\n").length;
  const show = (open) => (block.textContent = shown(text, open));
  show(false);
  if (lines <= LINES + 2 && text.length <= CHARACTERS) return block;
  const words = lines > LINES + 2 ? `Show all ${lines.toLocaleString()} lines` : "Show all";
  const props = { type: "button", class: "quiet fold-button", "aria-expanded": "false" };
  const button = h("button", props, icon("more"), words);
  const box = h("div", { class: "folding" }, block, button);
  button.addEventListener("click", () => {
    const open = box.classList.toggle("open");
    show(open);
    button.lastChild.textContent = open ? "Show less" : words;
    button.setAttribute("aria-expanded", String(open));
  });
  return box;
}

function shown(text, open) {
  const left = text.length - MOST;
  const rest = open && left > 0 ? `\n[${left.toLocaleString()} more characters are not shown here]` : "";
  return spelled(text.slice(0, open ? MOST : FOLDED)) + rest;
}
