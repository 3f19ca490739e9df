/** Text that the browser saves as a file. */

import { h } from "./elements.js";

/** Lets the browser save the text as a file of about that name: letters and digits of any language stay. */
export function saveText(text, name, ending, kind = "text/plain") {
  const url = URL.createObjectURL(new Blob([text], { type: `${kind};charset=utf-8` }));
  const link = h("a", { href: url, download: `${fileName(name)}.${ending}` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser reads it after the click
}

/** No name that a system would take for something else. */
function fileName(name) {
  return (
    name
      .normalize("NFC")
      .replace(/[^\p{L}\p{M}\p{N}]+/gu, "-")
      .replace(/^-+|-+$/g, "")
      .slice(0, 60) || "text"
  );
}
