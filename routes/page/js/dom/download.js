/** Saves text as a file through the browser. */

import { h } from "./elements.js";

/** Saves the text under a name derived from `name`: letters and digits of any script are kept. */
export function saveText(text, name, ending, kind = "text/plain") {
  saveBlob(new Blob([text], { type: `${kind};charset=utf-8` }), `${fileName(name)}.${ending}`);
}

/** Saves the blob under this name. */
export function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser reads it after the click
}

/** A file name without special characters. */
function fileName(name) {
  const plain = name.normalize("NFC").replace(/[^\p{L}\p{M}\p{N}]+/gu, "-");
  return plain.replace(/^-+|-+$/g, "").slice(0, 60) || "text";
}
