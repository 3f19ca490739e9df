/** The line of a first visit, above the message box: the embedded model is only a demonstration. */

import { button, focusMessageBox, h, icon, iconButton } from "../dom/elements.js";
import { pieces, t } from "../dom/texts.js";
import { loadOnce } from "../dom/forms.js";
import { writePreference, readPreference } from "../dom/storage.js";

const NEEDED = ["server", "me", "endpoints"]; // keys that must be known first
const SEEN = "first-visit"; // the preference that hides the line

let box = null; // shared by all new conversations

/** Shows it in new conversations until another model is connected or it was read. */
export function firstVisit(page) {
  if (box) return;
  box = h("section", { class: "first-visit", "aria-label": t("first_visit.region"), hidden: true });
  page.at("composer").before(box);
  const draw = () => {
    const [server, me, endpoints] = NEEDED.map((key) => page.store.get(key));
    const others = endpoints?.endpoints.some(({ name, models }) => name !== server?.endpoint && models.length);
    const read = others || readPreference(SEEN) === "read" || page.store.get("session");
    box.hidden = !server?.embedded || !me || !endpoints || Boolean(read);
    if (!box.hidden && !box.firstChild) box.append(...content(page, me));
  };
  for (const key of [...NEEDED, "session"]) page.store.watch(key, draw);
}

function content(page, { role }) {
  const opener = (sign, key, load, open) => {
    const opened = loadOnce(load, (panel) => open(panel, item));
    const item = button([icon(sign), t(key)], opened, { "aria-expanded": "false" });
    return item;
  };
  const connecting = () => import("../panels/connect_model.js");
  const getting = () => import("../panels/serving/get_model.js");
  const away = () => {
    writePreference(SEEN, "read");
    box.hidden = true;
    focusMessageBox();
  };
  const admin = role === "admin";
  const model = h("strong", { dir: "auto" }, page.store.get("server").model);
  const words = [pieces("first_visit.about", { model }), !admin && [" ", t("first_visit.ask_admin")]];
  return [
    h("p", {}, words.flat().filter(Boolean)),
    admin && opener("plug", "first_visit.connect", connecting, (form, from) => form.openConnect(page, from)),
    admin && opener("save", "first_visit.get", getting, (panel, from) => panel.openGetModel(page, from)),
    iconButton(t("first_visit.continue"), "cross", away),
  ].filter(Boolean);
}
