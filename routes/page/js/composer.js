/** Where a person writes: a message for a new run, or one more word to the run that is under way. */

import { post } from "./api.js";
import { h, icon } from "./dom.js";

export function start(page) {
  const form = page.at("composer");
  const text = h("textarea", { id: "composer-text", rows: 1, "aria-label": "Message", placeholder: "Ask for something" });
  form.append(text, h("button", { class: "primary", "aria-label": "Send" }, icon("send")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const message = text.value;
    if (!message.trim()) return;
    text.value = "";
    const session = page.store.get("session") ?? undefined;
    const begun = await post("/chat", { message, session }, { headers: { prefer: "respond-async" } });
    if (!session) page.conversation.open(begun.session);
  });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
}
