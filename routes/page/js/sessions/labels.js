/** The sensitivity labels of a conversation: a dialog that adds marks. None is taken away. */

import { get, patch } from "../feed/api.js";
import { announce, button, dialog, dialogButtons, h } from "../dom/elements.js";
import { Problem } from "../dom/forms.js";
import { t } from "../dom/more_texts.js";

/** Returns true if labels were added. */
export async function chooseLabels({ id, labels }) {
  const { labels: names = [] } = await get("/endpoints");
  const boxes = names.map((name) => {
    const has = labels.includes(name);
    return h("input", { type: "checkbox", name, checked: has, disabled: has });
  });
  const problem = new Problem();
  const chosen = () => boxes.filter((box) => box.checked && !box.disabled).map((box) => box.name);
  return dialog(t("labels.title"), (close) => {
    const save = async () => {
      try {
        if (chosen().length) await patch(`/sessions/${encodeURIComponent(id)}`, { labels: chosen() });
        announce(chosen().length ? t("labels.added") : t("labels.unchanged"));
        close(chosen().length > 0);
      } catch (error) {
        problem.show(error.message);
      }
    };
    const rows = boxes.map((box) => h("label", { class: "approval-choice" }, box, box.name));
    const cancel = button(t("dialog.cancel"), () => close(false));
    const add = button(t("labels.add"), save, { class: "primary" });
    return h("div", {}, h("p", {}, t("labels.stay")), rows, problem.element, dialogButtons(cancel, add));
  });
}
