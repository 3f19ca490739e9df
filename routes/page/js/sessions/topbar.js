/** The top bar: the button that shows the list, the title of the conversation, and the connection line. */

import { fill, h, iconButton } from "../dom/elements.js";
import { loadOnce } from "../dom/forms.js";
import { connectionLine } from "./connection_line.js";
import { renameField } from "./session_row.js";
import { t } from "../dom/texts.js";

const LONG = 8; // turns of a conversation that has an outline

export function start(page) {
  const { store } = page;
  const shows = { class: "quiet menu-button", title: t("list.show"), "aria-expanded": "false" };
  const props = { ...shows, "aria-controls": "sidebar" };
  const opens = iconButton(t("page.conversations"), "menu", () => page.drawer.open(opens), props);
  const title = h("h1", { class: "title", dir: "auto" });
  const rename = () => {
    const session = { id: store.get("session"), title: store.get("title") };
    pencil.hidden = true;
    renameField(title, session, (named) => {
      if (named && store.get("session") === session.id) store.set({ title: named });
      page.sessions.refresh();
      show();
      pencil.focus();
    });
  };
  const pencil = iconButton(t("list.rename"), "pencil", rename, { class: "quiet rename-button" });
  title.addEventListener("click", () => !pencil.hidden && rename());
  const begins = { class: "quiet new-small", title: null };
  const fresh = iconButton(t("list.new"), "plus", () => page.sessions.begin(), begins);
  const chips = h("span", { class: "mode-chips" });
  const showModes = (modes) => {
    const on = Object.entries(modes ?? {}).filter(([, value]) => value);
    const words = ([name, value]) => (name === "workspace" ? `${t("modes.workspace")}: ${value}` : t(`modes.${name}`));
    const chip = (mode) =>
      h("span", { class: "mode-chip", dir: "auto", title: t(`modes.${mode[0]}.hint`) }, words(mode));
    fill(chips, on.map(chip));
  };
  const load = () => import("./outline.js");
  const outline = loadOnce(load, ({ toggle }) => toggle(page, places));
  const places = iconButton(t("outline.title"), "outline", outline, { hidden: true, "aria-expanded": "false" });
  const offerOutline = () => (places.hidden = !(store.get("turns") >= LONG || store.get("earlier")));
  const show = () => {
    const open = Boolean(store.get("session"));
    title.textContent = open ? store.get("title") || t("list.untitled") : t("list.new");
    document.title = open && store.get("title") ? t("topbar.named", { title: store.get("title") }) : "dragoman";
    pencil.hidden = !open || !title.isConnected;
  };
  page.at("topbar").append(opens, title, pencil, chips, h("span", { class: "topbar-rest" }), places, fresh);
  store.watch("session", show);
  store.watch("title", show);
  store.watch("modes", showModes);
  store.watch("turns", offerOutline);
  store.watch("earlier", offerOutline);
  show();
  connectionLine(page);
}
