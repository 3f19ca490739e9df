/** The kill switch: a button for admins, and a banner for all users while the server is paused. */

import { post } from "../feed/api.js";
import { dialog, fill, h, icon, announce } from "../dom/elements.js";
import { Outcome, runOnce } from "../dom/forms.js";
import { t } from "../dom/texts.js";

/** For admins: pauses or resumes. */
export function pauseButton(page) {
  const outcome = new Outcome();
  const press = () => (page.store.get("paused") ? resume(button, outcome, page) : pause(page));
  const button = h("button", { type: "button", class: "status-item", hidden: true, onclick: press });
  const draw = () => {
    button.hidden = page.store.get("me")?.role !== "admin";
    const paused = page.store.get("paused");
    button.title = t(paused ? "pause.resume" : "pause.hint");
    fill(
      button,
      icon(paused ? "play" : "pause"),
      h("span", { class: "visually-hidden" }, t(paused ? "pause.resume" : "pause.button")),
    );
  };
  for (const key of ["me", "paused"]) page.store.watch(key, draw);
  return button;
}

/** The line above the message box while the server is paused. */
export function pauseBanner(page) {
  const outcome = new Outcome();
  const resuming = h(
    "button",
    { type: "button", onclick: () => resume(resuming, outcome, page) },
    icon("play"),
    t("pause.resume"),
  );
  const words = h("span");
  const banner = h(
    "div",
    { class: "paused", role: "region", "aria-label": t("pause.region"), hidden: true },
    icon("pause"),
    words,
    resuming,
    outcome.element,
  );
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

async function resume(button, outcome, page) {
  const answer = await runOnce(button, outcome, () => post("/resume"));
  if (answer) page.store.set({ paused: answer.paused });
}

function pause(page) {
  const outcome = new Outcome();
  return dialog(t("pause.question"), (close) => {
    const now = async (button, cancel) => {
      const answer = await runOnce(button, outcome, () => post("/pause", { cancel }));
      if (!answer) return;
      page.store.set({ paused: answer.paused });
      close(true);
    };
    const stop = h("button", { type: "button", class: "danger", onclick: () => now(stop, true) }, t("pause.stop"));
    const only = h("button", { type: "button", class: "primary", onclick: () => now(only, false) }, t("pause.button"));
    return h(
      "div",
      { class: "stack" },
      h("p", {}, t("pause.meaning")),
      h("p", { class: "faint" }, t("pause.meaning.running")),
      h(
        "div",
        { class: "buttons" },
        only,
        stop,
        h("button", { type: "button", onclick: () => close(false) }, t("dialog.cancel")),
      ),
      outcome.element,
    );
  });
}
