/** The top bar: the button that shows the list, the title of the conversation, and the connection line. */

import { h, icon } from "../dom/elements.js";
import { connectionLine } from "./connection_line.js";
import { renameField } from "./session_row.js";
import { t } from "../dom/texts.js";

export function start(page) {
  const { store } = page;
  const menu = {
    type: "button",
    class: "quiet menu-button",
    "aria-label": t("page.conversations"),
    title: t("list.show"),
    "aria-expanded": "false",
  };
  const opens = h(
    "button",
    { ...menu, "aria-controls": "sidebar", onclick: () => page.drawer.open(opens) },
    icon("menu"),
  );
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
  const pencil = h("button", {
    type: "button",
    class: "quiet rename-button",
    "aria-label": t("list.rename"),
    title: t("list.rename"),
  });
  pencil.append(icon("pencil"));
  pencil.addEventListener("click", rename);
  title.addEventListener("click", () => !pencil.hidden && rename());
  const fresh = {
    type: "button",
    class: "quiet new-small",
    "aria-label": t("list.new"),
    onclick: () => page.sessions.begin(),
  };
  const show = () => {
    const open = Boolean(store.get("session"));
    title.textContent = open ? store.get("title") || t("list.untitled") : t("list.new");
    document.title = open && store.get("title") ? t("topbar.named", { title: store.get("title") }) : "dragoman";
    pencil.hidden = !open || !title.isConnected;
  };
  page.at("topbar").append(opens, title, pencil, h("span", { class: "topbar-rest" }), h("button", fresh, icon("plus")));
  store.watch("session", show);
  store.watch("title", show);
  show();
  connectionLine(page);
}
