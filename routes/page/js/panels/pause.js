/** The kill switch: a button for admins, and a banner for all users while the server is paused. */

import { post } from "../feed/api.js";
import { announce, button, buttonRow, dialog, fill, h, icon, stack } from "../dom/elements.js";
import { Outcome, runOnce } from "../dom/forms.js";
import { t } from "../dom/texts.js";

/** For admins: pauses or resumes. */
export function pauseButton(page) {
  const outcome = new Outcome();
  const press = () => (page.store.get("paused") ? resume(item, outcome, page) : pause(page));
  const item = button(null, press, { class: "status-item", hidden: true });
  const draw = () => {
    item.hidden = page.store.get("me")?.role !== "admin";
    const paused = page.store.get("paused");
    fill(item, icon(paused ? "play" : "pause"), h("span", {}, t(paused ? "pause.resume" : "pause.hint")));
  };
  for (const key of ["me", "paused"]) page.store.watch(key, draw);
  return item;
}

/** The line above the message box while the server is paused. */
export function pauseBanner(page) {
  const outcome = new Outcome();
  const resuming = button([icon("play"), t("pause.resume")], () => resume(resuming, outcome, page));
  const words = h("span");
  const props = { class: "paused", role: "region", "aria-label": t("pause.region"), hidden: true };
  const banner = h("div", props, icon("pause"), words, resuming, outcome.element);
  let before = false;
  const draw = () => {
    const paused = Boolean(page.store.get("paused"));
    const admin = page.store.get("me")?.role === "admin";
    banner.hidden = !paused;
    resuming.hidden = !admin;
    fill(words, h("strong", {}, t("pause.banner")), " ", t(admin ? "pause.banner.admin" : "pause.banner.user"));
    if (paused !== before) announce(t(paused ? "pause.announced" : "pause.announced.over"));
    before = paused;
  };
  for (const key of ["me", "paused"]) page.store.watch(key, draw);
  return banner;
}

async function resume(pressed, outcome, page) {
  const answer = await runOnce(pressed, outcome, () => post("/resume"));
  if (answer) page.store.set({ paused: answer.paused });
}

function pause(page) {
  const outcome = new Outcome();
  return dialog(t("pause.question"), (close) => {
    const now = async (pressed, cancel) => {
      const answer = await runOnce(pressed, outcome, () => post("/pause", { cancel }));
      if (!answer) return;
      page.store.set({ paused: answer.paused });
      close(true);
    };
    const stop = button(t("pause.stop"), () => now(stop, true), { class: "danger" });
    const only = button(t("pause.button"), () => now(only, false), { class: "primary" });
    const cancel = button(t("dialog.cancel"), () => close(false));
    const note = h("p", { class: "faint" }, t("pause.meaning.running"));
    return stack(h("p", {}, t("pause.meaning")), note, buttonRow(only, stop, cancel), outcome.element);
  });
}
