/** Text into the reader's hands: the clipboard, or a file. */

import { h, say } from "./dom.js";

/** Copies, also where a page may not use the clipboard; tells the screen reader. Says whether it worked. */
export async function copyText(text) {
  const done = await navigator.clipboard?.writeText(text).then(
    () => true,
    () => false,
  );
  const copied = done || copyBySelection(text);
  say(copied ? "Copied." : "Copying is not possible here.");
  return copied;
}

function copyBySelection(text) {
  const opener = document.activeElement;
  const field = h("textarea", { class: "unseen", "aria-hidden": "true", value: text });
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  opener?.focus?.();
  return copied;
}

/** Lets the browser save the text as a file of that name. */
export function saveText(text, name) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
  h("a", { href: url, download: name.replace(/[^\w.-]+/g, "-").slice(0, 80) }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
