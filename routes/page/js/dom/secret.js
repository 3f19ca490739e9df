/** A new secret, shown once. */

import { copyButton } from "./copy.js";
import { button, buttonRow, h } from "./elements.js";
import { t } from "./more_texts.js";

const TEXTS = { label: "secret.named", copy: "secret.copy", brief: "secret.copy.short", done: "secret.done" };

/** The secret under `words` that say so; its button removes it from the page, then `gone()` is called. */
export function secretOnce({ name, secret }, words, { texts = TEXTS, gone = () => undefined } = {}) {
  const label = t(texts.label, { name });
  const text = h("input", { value: secret, readonly: true, class: "mono", "aria-label": label, dir: "ltr" });
  const copy = copyButton(t(texts.copy), () => secret, t(texts.brief));
  const done = button(t(texts.done), () => {
    text.value = "";
    box.remove();
    gone();
  });
  const box = h("div", { class: "new-token stack" }, h("p", {}, words), text, buttonRow(copy, done));
  return box;
}
