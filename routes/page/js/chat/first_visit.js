/** The note of a first visit: the embedded model is only a demonstration. */

import { button, buttonRow, focusMessageBox, h, icon } from "../dom/elements.js";
import { t } from "../dom/texts.js";
import { loadOnce } from "../dom/forms.js";
import { writePreference, readPreference } from "../dom/storage.js";

const NEEDED = ["server", "me", "endpoints"]; // keys that must be known first
const SEEN = "first-visit"; // the preference that hides the note

/** The note about the embedded model; hidden once another model is connected or the note was read. */
export function firstVisit(page) {
  box ??= watching(page);
  return box;
}

let box = null; // shared by all new conversations

function watching(page) {
  const box = h("section", { class: "first-visit", "aria-label": t("first_visit.region"), hidden: true });
  const draw = () => {
    const [server, me, endpoints] = NEEDED.map((key) => page.store.get(key));
    const others = endpoints?.endpoints.some(({ name, models }) => name !== server?.endpoint && models.length);
    box.hidden = !server?.embedded || !me || !endpoints || others || readPreference(SEEN) === "read";
    if (!box.hidden && !box.firstChild) box.append(...welcome(page, me, box));
  };
  for (const key of NEEDED) page.store.watch(key, draw);
  return box;
}

function welcome(page, { role }, box) {
  const load = () => import("../panels/connect_model.js");
  const open = loadOnce(load, (form) => form.openConnect(page, connect));
  const props = { class: "primary", "aria-expanded": "false" };
  const connect = button([icon("plug"), t("first_visit.connect")], open, props);
  const loadGet = () => import("../panels/serving/get_model.js");
  const getting = loadOnce(loadGet, (panel) => panel.openGetModel(page, fetched));
  const fetched = button([icon("down"), t("first_visit.get")], getting, { "aria-expanded": "false" });
  const away = () => {
    writePreference(SEEN, "read");
    box.hidden = true;
    focusMessageBox();
  };
  const admin = role === "admin";
  return [
    h("h2", {}, t("first_visit.title")),
    h("p", {}, t("first_visit.about", { model: page.store.get("server").model })),
    !admin && h("p", {}, t("first_visit.ask_admin")),
    buttonRow(admin && connect, admin && fetched, button(t("first_visit.continue"), away)),
    admin && setting(),
  ].filter(Boolean);
}

/** The other way to connect a model, folded. */
function setting() {
  const props = { class: "command", tabindex: 0, "aria-label": t("first_visit.setting") };
  const line = h("pre", props, "DRAGOMAN_MODEL_URL=http://127.0.0.1:8080/v1");
  return h("details", { class: "faint" }, h("summary", {}, t("first_visit.how")), line);
}
