/** A long text that was pasted: an attachment that can be read, and put into the message after all. */

import { formatSize } from "../cards/changed_files.js";
import { button, dialog, dialogButtons } from "../dom/elements.js";
import { t } from "../dom/more_texts.js";
import { exactBlock } from "../text/exact_text.js";

const INLINE = 256 * 1024; // characters; the model opens the file of a longer one

/** The attachment, see `readFile`; `intoMessage()` makes it text of the message. */
export function pastedFile(text, data, intoMessage) {
  const lines = t("tail.lines", { count: text.trimEnd().split("\n").length });
  const label = t("pasted.label", { size: formatSize(new Blob([text]).size), lines });
  const open = () =>
    dialog(label, (close) => {
      const put = button(t("pasted.put"), () => {
        close();
        intoMessage();
      });
      const shut = button(t("files.close"), () => close());
      return [...exactBlock(text, label), dialogButtons(put, shut)];
    });
  const [name, kind] = ["pasted.txt", t("attachments.kind.text")];
  const inline = text.length <= INLINE ? text : undefined;
  return { name, label, kind, part: { type: "file", data, name }, pasted: text, text: inline, open };
}
