/** The profile of a conversation that has not begun: sent with its first message, which keeps it for the others. */

import { get } from "../../feed/api.js";
import { announce, fill, h } from "../../dom/elements.js";
import { field } from "../../dom/forms.js";

let watching = false;

/** A choice of profiles; nothing where there is none to choose. */
export function newProfile(page) {
  if (!watching) page.store.watch("session", (session) => session && page.store.set({ profile: null }));
  watching = true;
  const box = h("div", {});
  get("/profiles")
    .then(({ profiles }) => profiles.length && fill(box, choice(page, profiles)))
    .catch((error) => fill(box, h("p", { class: "problem", role: "alert" }, error.message)));
  return box;
}

function choice(page, profiles) {
  const rows = [["", "No profile"], ...profiles.map(({ name }) => [name, name])];
  const select = h(
    "select",
    { dir: "auto" },
    rows.map(([value, words]) => h("option", { value }, words)),
  );
  select.value = page.store.get("profile") ?? "";
  select.addEventListener("change", () => {
    page.store.set({ profile: select.value || null });
    announce(
      select.value ? `The conversation begins with the profile ${select.value}.` : "It begins without a profile.",
    );
  });
  return field("Profile", select, "For the whole conversation. Its options in the menu change it later.");
}
