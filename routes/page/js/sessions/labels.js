/** The sensitivity labels of a conversation: a dialog that adds marks. None is taken away. */

import { get, patch } from "../feed/api.js";
import { announce, dialog, fill, h } from "../dom/elements.js";

const STAYS = "Labels are only added: whatever was read with a label stays sensitive.";

/** Returns true if labels were added. */
export async function chooseLabels({ id, labels }) {
  const { labels: names = [] } = await get("/endpoints");
  const boxes = names.map((name) => {
    const has = labels.includes(name);
    return h("input", { type: "checkbox", name, checked: has, disabled: has });
  });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const chosen = () => boxes.filter((box) => box.checked && !box.disabled).map((box) => box.name);
  return dialog("Labels of this conversation", (close) => {
    const save = async () => {
      try {
        if (chosen().length) await patch(`/sessions/${encodeURIComponent(id)}`, { labels: chosen() });
        announce(chosen().length ? "The labels are added." : "Nothing was changed.");
        close(chosen().length > 0);
      } catch (error) {
        fill(problem, error.message).hidden = false;
      }
    };
    const rows = boxes.map((box) => h("label", { class: "approval-choice" }, box, box.name));
    const cancel = h("button", { type: "button", onclick: () => close(false) }, "Cancel");
    const add = h("button", { type: "button", class: "primary", onclick: save }, "Add labels");
    return h("div", {}, h("p", {}, STAYS), ...rows, problem, h("div", { class: "dialog-buttons" }, cancel, add));
  });
}
