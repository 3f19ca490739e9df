/** Tokens, for admins: creates, lists and revokes them; a new token is shown once. */

import { get, post, remove, token as own } from "../feed/api.js";
import { copyButton } from "../dom/copy.js";
import { fill, h, icon } from "../dom/elements.js";
import { runOnce, field, Outcome, confirmButton } from "../dom/forms.js";
import { deferSignOut } from "./sign_in.js";

const EXPIRIES = { "30d": "30 days", "7d": "a week", "365d": "a year", "": "no expiry" };

const FIRST =
  "No tokens exist yet. After the first one is created every user needs a token, so create an admin token for yourself " +
  "first. Existing conversations are not visible to users with a token.";

/** The list and the form. Raises Refused. */
export async function tokens() {
  const list = h("ul", { class: "tokens" });
  const draw = async () => {
    const { tokens: rows } = await get("/tokens");
    fill(
      list,
      rows.filter(({ state }) => state === "active").map((row) => tokenRow(row, draw)),
    );
    if (!list.firstChild) list.append(h("li", { class: "faint" }, FIRST));
  };
  await draw();
  return h("div", { class: "stack" }, list, createForm(draw));
}

function tokenRow({ name, role, expires }, draw) {
  const outcome = new Outcome();
  const away = async () => {
    await remove(`/tokens/${encodeURIComponent(name)}`);
    await draw();
  };
  const until = expires ? `until ${new Date(expires * 1000).toLocaleDateString()}` : "no expiry";
  return h(
    "li",
    {},
    h("span", {}, h("strong", {}, name), h("span", { class: "faint" }, ` ${role}, ${until}`)),
    confirmButton("Revoke", `Revoke ${name}? Its active runs end immediately.`, "Revoke it", outcome, away),
    outcome.element,
  );
}

function createForm(draw) {
  const outcome = new Outcome();
  const name = h("input", { required: true, maxlength: 64, autocomplete: "off", dir: "ltr" });
  const role = h(
    "select",
    {},
    (own.get() ? ["user", "guest", "admin"] : ["admin"]).map((one) => h("option", {}, one)),
  );
  const span = h(
    "select",
    {},
    Object.entries(EXPIRIES).map(([value, words]) => h("option", { value }, words)),
  );
  const make = h("button", { type: "submit" }, icon("plus"), "Create a token");
  const once = h("div", { hidden: true });
  const form = h(
    "form",
    { class: "form" },
    field("Name", name),
    field("Role", role),
    field("Valid for", span),
    h("div", { class: "buttons" }, make),
    outcome.element,
    once,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const wish = { name: name.value.trim(), role: role.value, ...(span.value && { expires: span.value }) };
    const first = !own.get();
    const made = await runOnce(make, outcome, () => deferSignOut(() => createToken(wish, first)));
    if (!made) return;
    form.reset();
    fill(
      once,
      secret(made, () => (first ? location.replace(location.pathname) : (once.hidden = true))),
    );
    once.hidden = false;
    await draw().catch((error) => outcome.show(error.message, "problem"));
  });
  return form;
}

/** Once a token exists the server requires one: this page continues with the new one. */
async function createToken(wish, first) {
  const made = await post("/tokens", wish);
  if (first) own.set(made.token);
  return made;
}

/** A new token, shown once: the button removes it from the page. */
function secret({ name, token }, gone) {
  const text = h("input", {
    value: token,
    readonly: true,
    class: "mono",
    "aria-label": `Token of ${name}`,
    dir: "ltr",
  });
  const copy = copyButton("Copy the token", () => token, "Copy");
  const done = h(
    "button",
    {
      type: "button",
      onclick: () => {
        text.value = "";
        box.remove();
        gone();
      },
    },
    "Done",
  );
  const box = h(
    "div",
    { class: "new-token stack" },
    h("p", {}, h("strong", {}, `The token of ${name}. `), "It is shown only once and cannot be retrieved later."),
    text,
    h("div", { class: "buttons" }, copy, done),
  );
  return box;
}
