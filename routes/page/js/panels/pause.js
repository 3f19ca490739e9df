/** The kill switch: a button for admins, and a banner for all users while the server is paused. */

import { post } from "../feed/api.js";
import { dialog, fill, h, icon, announce } from "../dom/elements.js";
import { Outcome, runOnce } from "../dom/forms.js";

/** For admins: pauses or resumes. */
export function pauseButton(page) {
  const outcome = new Outcome();
  const press = () => (page.store.get("paused") ? resume(button, outcome, page) : pause(page));
  const button = h("button", { type: "button", class: "status-item", hidden: true, onclick: press });
  const draw = () => {
    button.hidden = page.store.get("me")?.role !== "admin";
    const paused = page.store.get("paused");
    button.title = paused ? "Resume" : "Pause the server";
    fill(button, icon(paused ? "play" : "pause"), h("span", { class: "visually-hidden" }, paused ? "Resume" : "Pause"));
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
    "Resume",
  );
  const words = h("span");
  const banner = h(
    "div",
    { class: "paused", role: "region", "aria-label": "The server is paused", hidden: true },
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
    fill(
      words,
      h("strong", {}, "Paused. "),
      `No model requests are sent and no tools, jobs or MCP servers are started until ${admin ? "you resume" : "an admin resumes"}.`,
    );
    if (paused !== before) announce(paused ? "The server is paused." : "The server has resumed.");
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
  return dialog("Pause the server?", (close) => {
    const now = async (button, cancel) => {
      const answer = await runOnce(button, outcome, () => post("/pause", { cancel }));
      if (!answer) return;
      page.store.set({ paused: answer.paused });
      close(true);
    };
    const stop = h(
      "button",
      { type: "button", class: "danger", onclick: () => now(stop, true) },
      "Pause and stop everything",
    );
    const only = h("button", { type: "button", class: "primary", onclick: () => now(only, false) }, "Pause");
    return h(
      "div",
      { class: "stack" },
      h(
        "p",
        {},
        "For all users: no model requests are sent and no tools, background jobs or MCP servers are started until an admin resumes. The pause persists across restarts.",
      ),
      h(
        "p",
        { class: "faint" },
        "Running tools, background jobs and MCP servers continue unless you stop them: then all runs, jobs and MCP servers end with all processes they started.",
      ),
      h(
        "div",
        { class: "buttons" },
        only,
        stop,
        h("button", { type: "button", onclick: () => close(false) }, "Cancel"),
      ),
      outcome.element,
    );
  });
}
