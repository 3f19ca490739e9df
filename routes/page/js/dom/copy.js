/** A button that copies a text to the clipboard and confirms it. */

import { h, icon, announce } from "./elements.js";
import { t } from "./texts.js";

const SHOWN_MS = 2_000;

/** `text()` is called on each click. */
export function copyButton(name, text, words = "") {
  const button = h(
    "button",
    { type: "button", class: "quiet copy", "aria-label": name, title: name },
    icon("copy"),
    words,
  );
  let shown = null;
  button.addEventListener("click", async () => {
    const copied = await copyText(text());
    clearTimeout(shown);
    const told = t(copied ? "copy.done" : "copy.failed");
    button.replaceChildren(icon(copied ? "check" : "cross"), told);
    announce(told);
    shown = setTimeout(() => button.replaceChildren(icon("copy"), words), SHOWN_MS);
  });
  return button;
}

/** Copies the text. Returns whether that worked. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelecting(text); // no permission, or not a secure context
  }
}

function copyBySelecting(text) {
  const focused = document.activeElement;
  const area = h("textarea", { class: "visually-hidden", "aria-hidden": "true", tabindex: -1, value: text });
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return copied;
}
