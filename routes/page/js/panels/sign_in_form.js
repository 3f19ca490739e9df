/** The sign-in form: with a token for this tab only, or on this device until the sign-in ends. */

import { keptSignIn, request, token } from "../feed/api.js";
import { fill, h } from "../dom/elements.js";
import { Outcome, runOnce, field } from "../dom/forms.js";
import { guarded } from "../dom/errors.js";
import { showProvider } from "./provider_sign_in.js";
import { pieces, t } from "../dom/more_texts.js";

const TOKEN = /^[\x21-\x7e]+$/; // characters that a header can carry

/** Shows the form in place of the page. */
export function show(page, hint, reason, answer) {
  const why = hint || (reason && firstSentence(reason));
  const gate = page.at("sign-in");
  const note = why && h("p", { class: why === t("sign_in.out") ? "sign-in-note" : "problem", role: "alert" }, why);
  const { form, secret, outcome } = signInForm();
  const provider = h("div", {});
  const title = h("h1", { id: "sign-in-title" }, "dragoman");
  const command = h("code", {}, "dragoman token create --name NAME");
  const operator = h("div", { class: "faint stack" }, h("p", {}, pieces("sign_in.form.operator", { command })));
  const about = h("p", {}, t("sign_in.form.about"));
  const props = { class: "sign-in-box", "aria-labelledby": title.id };
  fill(gate, h("main", props, title, note, about, provider, form, operator));
  gate.hidden = false;
  secret.focus();
  guarded(() => showProvider(provider, outcome, answer));
}

function signInForm() {
  const outcome = new Outcome();
  const secret = h("input", {
    type: "password",
    required: true,
    autocomplete: "current-password",
    spellcheck: "false",
    autocapitalize: "none",
    dir: "ltr",
    class: "mono",
  });
  // Password managers store a password only together with a name.
  const name = h("input", {
    class: "visually-hidden",
    type: "text",
    autocomplete: "username",
    value: "dragoman",
    tabindex: -1,
    "aria-hidden": "true",
    readonly: true,
  });
  const keep = h("input", { type: "checkbox", "aria-describedby": "sign-in-keep" });
  const enter = h("button", { type: "submit", class: "primary" }, t("sign_in.form.enter"));
  const onsubmit = (event) => {
    event.preventDefault();
    submitToken(secret, keep.checked, enter, outcome);
  };
  const form = h(
    "form",
    { class: "form", onsubmit },
    name,
    field(t("sign_in.form.token"), secret),
    h("label", { class: "check" }, keep, h("span", {}, t("sign_in.form.keep"))),
    h("p", { class: "faint", id: "sign-in-keep" }, t("sign_in.form.keep.hint")),
    enter,
    outcome.element,
  );
  return { form, secret, outcome };
}

async function submitToken(secret, keeps, enter, outcome) {
  const given = secret.value.trim();
  if (!TOKEN.test(given)) return void outcome.show(t("sign_in.invalid"), "problem");
  const known = await runOnce(enter, outcome, () => (keeps ? keepSignedIn : checkToken)(given, enter, outcome));
  if (!known) return void secret.select();
  if (!keeps) token.set(given);
  location.reload();
}

/** Validates the token against the server. Raises Refused. */
async function checkToken(given, enter, outcome) {
  try {
    await request("GET", "/approvals", { headers: { authorization: `Bearer ${given}` } });
    return true;
  } catch (error) {
    throw refused(error, enter, outcome);
  }
}

/** Exchanges the token for a sign-in that lasts. Raises Refused, also where the browser keeps no cookie. */
async function keepSignedIn(given, enter, outcome) {
  let key;
  try {
    const response = await request("POST", "/sign-ins", { headers: { authorization: `Bearer ${given}` } });
    ({ key } = await response.json());
  } catch (error) {
    throw refused(error, enter, outcome);
  }
  try {
    await request("GET", "/approvals", { headers: keptSignIn.header(key) });
  } catch (error) {
    if (error.status === 401) error.message = t("sign_in.form.no_cookies");
    throw error;
  }
  keptSignIn.set(key);
  return true;
}

function refused(error, enter, outcome) {
  if (error.status === 429) countDown(error, enter, outcome);
  if (error.status === 401) error.message = t("sign_in.form.wrong", { reason: firstSentence(error.message) });
  return error;
}

/** Rate-limited: the button shows when it can be used again. */
function countDown({ more }, enter, outcome) {
  const until = (more.reset ?? Date.now() / 1000 + 60) * 1000;
  enter.disabled = true;
  const tick = () => {
    const left = Math.ceil((until - Date.now()) / 1000);
    if (left > 0) return void fill(enter, t("sign_in.form.wait", { left }));
    clearInterval(timer);
    enter.disabled = false;
    fill(enter, t("sign_in.form.enter"));
    outcome.clear();
  };
  const timer = setInterval(tick, 1000);
  tick();
}

/** The first sentence: the rest is advice for the command line. */
const firstSentence = (message) => message.split(/(?<=\.) /)[0];
