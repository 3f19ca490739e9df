/** Text in the reader's hands: what they save, and what they have selected. */

import { h } from "./dom.js";

/** Lets the browser save the text as a file of that name. */
export function saveText(text, name) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
  h("a", { href: url, download: name.replace(/[^\w.-]+/g, "-").slice(0, 80) }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Whether the reader has selected something that begins in the element: it must not change under their hand. */
export function selectedIn(element) {
  // Whether a selection is empty can be asked for itself, but that lays out the whole page.
  const { anchorNode, anchorOffset, focusNode, focusOffset } = document.getSelection();
  return element.contains(anchorNode) && (anchorNode !== focusNode || anchorOffset !== focusOffset);
}
