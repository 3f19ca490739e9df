/** The line below the top bar: the connection is lost, when it reconnects, and that it is back. */

import { announce, button, fill, h } from "../dom/elements.js";
import { startTicking } from "../dom/clock.js";
import { t } from "../dom/texts.js";

const PATIENCE_MS = 1500; // shorter interruptions are not shown
const BACK_MS = 2500;

export function connectionLine(page) {
  const line = page.at("connection");
  const words = h("span");
  const retry = button(t("connection.retry"), () => page.feed.restart(), { class: "connection-retry" });
  let late = null,
    until = null,
    lost = false,
    offline = false; // the browser says so
  line.append(words, retry);

  const show = () => {
    const left = until === null ? 0 : Math.ceil((until - performance.now()) / 1000);
    if (offline) return fill(words, t("connection.offline"));
    fill(words, left > 0 ? t("connection.lost.in", { seconds: left }) : t("connection.lost"));
  };
  const showLost = () => {
    if (lost) return;
    lost = true;
    line.className = "connection connection-lost";
    line.hidden = retry.hidden = false;
    stop = startTicking(show);
    show();
    announce(t(offline ? "connection.offline" : "connection.lost.announced"));
  };
  let stop = () => undefined;

  const back = () => {
    clearTimeout(late);
    late = null;
    stop();
    if (!lost) return void (line.hidden = true);
    lost = false;
    line.className = "connection connection-back";
    retry.hidden = true;
    fill(words, t("connection.back"));
    announce(t("connection.back"));
    setTimeout(() => (line.hidden = !lost), BACK_MS);
  };
  const refused = (why) => {
    back();
    if (!why || [401, 404].includes(why.status)) return; // the sign-in form or the conversation shows these
    line.className = "connection connection-lost";
    line.hidden = retry.hidden = false;
    fill(words, why.message);
  };

  page.store.watch("connection", ({ state, in_s, why, offline: cut = false }) => {
    if (state === "open") return back();
    if (state === "refused") return refused(why);
    until = in_s === undefined ? null : performance.now() + in_s * 1000;
    offline = cut || (offline && !navigator.onLine);
    if (offline) showLost();
    else if (state === "lost") late ??= setTimeout(showLost, PATIENCE_MS);
    if (lost) show();
  });
}
