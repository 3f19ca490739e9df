/** A button that copies a text to the clipboard and confirms it. */

import { announce, button, h, icon } from "./elements.js";
import { t } from "./texts.js";

const SHOWN_MS = 2_000;

/** `text()` is called on each click. */
export function copyButton(name, text, words = "") {
  let shown = null;
  const copy = async () => {
    const copied = await copyText(text());
    clearTimeout(shown);
    const outcome = t(copied ? "copy.done" : "copy.failed");
    copies.replaceChildren(icon(copied ? "check" : "cross"), outcome);
    announce(outcome);
    shown = setTimeout(() => copies.replaceChildren(icon("copy"), words), SHOWN_MS);
  };
  const copies = button([icon("copy"), words], copy, { class: "quiet copy", "aria-label": name, title: name });
  return copies;
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
