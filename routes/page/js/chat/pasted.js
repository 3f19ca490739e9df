/** A long text that was pasted: an attachment that can be read, and put into the message after all. */

import { formatSize } from "../cards/changed_files.js";
import { button, dialog, dialogButtons, h } from "../dom/elements.js";
import { t } from "../dom/more_texts.js";

const INLINE = 256 * 1024; // characters; the model opens the file of a longer one
const FIRST_SHOWN = 100_000; // characters: the page lays out a part at once

/** The attachment, see `readFile`; `intoMessage()` is called when it shall be text of the message. */
export function pastedFile(text, data, intoMessage) {
  const lines = text.trimEnd().split("\n").length;
  const label = t("pasted.label", {
    size: formatSize(new Blob([text]).size),
    lines: t("tail.lines", { count: lines }),
  });
  const name = "pasted.txt";
  const open = () => openPasted(label, text, intoMessage);
  const part = { type: "file", data, name };
  return {
    name,
    label,
    kind: t("attachments.kind.text"),
    part,
    pasted: text,
    text: text.length <= INLINE ? text : undefined,
    open,
  };
}

function openPasted(label, text, intoMessage) {
  return dialog(label, (close) => {
    const shown = h("pre", { class: "pasted-text", dir: "auto", tabindex: 0 }, text.slice(0, FIRST_SHOWN));
    const more = () => {
      shown.append(text.slice(shown.textContent.length, shown.textContent.length + FIRST_SHOWN));
      rest.hidden = shown.textContent.length >= text.length;
    };
    const rest = button(t("pasted.more"), more, { hidden: text.length <= FIRST_SHOWN });
    const put = () => {
      close();
      intoMessage();
    };
    return [
      shown,
      dialogButtons(
        rest,
        button(t("pasted.put"), put),
        button(t("files.close"), () => close()),
      ),
    ];
  });
}
