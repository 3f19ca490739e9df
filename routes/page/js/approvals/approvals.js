/** Approvals on the page: the tray comes with the first waiting call, the signals of a hidden page are always there. */

import { startNotifications } from "./notifications.js";

export function start(page) {
  let loading = null;
  const tray = () => {
    loading ??= import("./tray.js").then(
      ({ Tray }) => new Tray(page),
      (error) => {
        loading = null; // the next change of the list tries again
        throw error;
      },
    );
    return loading;
  };
  const show = async (row) => (await tray()).show(row);
  page.store.watch("approvals", (rows) => rows.length && tray());
  page.at("approvals").addEventListener("show", ({ detail }) => show(detail));
  startNotifications(page, show, tray);
}
