/** Signing in and out, for servers with tokens: in this tab only, or on this device until the sign-in ends. */

import { keptSignIn, onSignedOut, remove, request, SIGN_IN, token } from "../feed/api.js";
import { fill, h } from "../dom/elements.js";
import { pieces, t } from "../dom/texts.js";
import { Outcome, runOnce, field } from "../dom/forms.js";
import { clearStored, onPreference, writeStored, readStored } from "../dom/storage.js";

const WHY = "signed-out"; // why the user was signed out, for the form shown after the reload
export const SIGNED_OUT = t("sign_in.out");
const IN_ADDRESS = /[?&#](access_)?token=/i;
const LOCAL = /^#token=(dgm_local_[\w-]{37})$/;
const TOKEN = /^[\x21-\x7e]+$/; // characters that a header can carry

export function start(page) {
  const hint = takeTokenFromAddress();
  onSignedOut((message) => onUnauthenticated(page, message, hint));
  onPreference(SIGN_IN, (key) => {
    if (key && !page.at("sign-in").hidden)
      location.reload(); // signed in in another tab
    else if (!key && !token.get() && page.store.get("me")) leave(SIGNED_OUT);
  });
  addEventListener("hashchange", () => {
    // The address that the server prints, opened in a tab that already shows the page.
    if (LOCAL.test(location.hash) && !takeTokenFromAddress()) location.reload();
  });
}

/**
 * Removes a token from the address, where the history would keep it. Only the token that the server prints on systems
 * without separate accounts is used: it is in the fragment, which browsers do not send.
 */
function takeTokenFromAddress() {
  if (!IN_ADDRESS.test(location.search + location.hash)) return "";
  const [, local] = (!location.search && LOCAL.exec(location.hash)) || [];
  history.replaceState(null, "", location.pathname);
  if (local) {
    if (!token.get()) token.set(local);
    return "";
  }
  return t("sign_in.in_address");
}

/** The server rejects the token: removes all that the page has shown, also from memory, and shows the sign-in form. */
function onUnauthenticated(page, message, hint) {
  if (deferred || !page.at("sign-in").hidden) return;
  if (token.get() || keptSignIn.get() || page.store.get("me")) return void leave(message);
  const why = readStored(WHY) && firstSentence(readStored(WHY));
  writeStored(WHY, null);
  show(page, hint || why);
}

let signingOut = false;
let deferred = 0;

/** Runs work during which the token may be rejected; signing out is deferred until it is done. */
export async function deferSignOut(work) {
  deferred++;
  try {
    return await work();
  } finally {
    deferred--;
  }
}

/** Ends the sign-in that lasts, for all tabs of this browser, and shows the sign-in form. */
export async function signOut() {
  if (keptSignIn.get()) {
    const [id] = keptSignIn.get().split(".");
    await deferSignOut(() => remove(`/sign-ins/${id}`)).catch(() => null); // without the key nothing is left of it here
  }
  leave(SIGNED_OUT, location.pathname);
}

/** Forgets the token and all that was shown, and reloads; the sign-in form shows `why`. */
function leave(why, address = null) {
  if (signingOut) return;
  signingOut = true;
  token.forget();
  keptSignIn.set(null);
  clearStored();
  writeStored(WHY, why);
  document.title = "dragoman";
  for (const shown of document.querySelectorAll("#app, dialog")) shown.remove();
  if (address !== null) history.replaceState(null, "", address);
  location.reload();
}

/** The first sentence: the rest is advice for the command line. */
const firstSentence = (message) => message.split(/(?<=\.) /)[0];

/** Whether the page has signed in, rather than local access without a token. */
export const isSignedIn = () => Boolean(token.get() ?? keptSignIn.get());

function show(page, why) {
  page.feed.close();
  page.at("app").hidden = true;
  const gate = page.at("sign-in");
  const told = why && h("p", { class: why === SIGNED_OUT ? "sign-in-note" : "problem", role: "alert" }, why);
  const { form, secret } = signInForm();
  const title = h("h1", { id: "sign-in-title" }, "dragoman");
  fill(
    gate,
    h(
      "main",
      { class: "sign-in-box", "aria-labelledby": title.id },
      title,
      told,
      h("p", {}, t("sign_in.about")),
      form,
      about(),
    ),
  );
  gate.hidden = false;
  secret.focus();
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
  const enter = h("button", { type: "submit", class: "primary" }, t("sign_in.enter"));
  const form = h(
    "form",
    { class: "form" },
    name,
    field(t("sign_in.token"), secret),
    h("label", { class: "check" }, keep, h("span", {}, t("sign_in.keep"))),
    h("p", { class: "faint", id: "sign-in-keep" }, t("sign_in.keep.hint")),
    enter,
    outcome.element,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submitToken(secret, keep.checked, enter, outcome);
  });
  return { form, secret };
}

function about() {
  return h(
    "div",
    { class: "faint stack" },
    h("p", {}, pieces("sign_in.operator", { command: h("code", {}, "dragoman token create --name NAME") })),
  );
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
    if (error.status === 401) error.message = t("sign_in.no_cookies");
    throw error;
  }
  keptSignIn.set(key);
  return true;
}

function refused(error, enter, outcome) {
  if (error.status === 429) countDown(error, enter, outcome);
  if (error.status === 401) error.message = t("sign_in.wrong", { reason: firstSentence(error.message) });
  return error;
}

/** Rate-limited: the button shows when it can be used again. */
function countDown({ more }, enter, outcome) {
  const until = (more.reset ?? Date.now() / 1000 + 60) * 1000;
  enter.disabled = true;
  const tick = () => {
    const left = Math.ceil((until - Date.now()) / 1000);
    if (left > 0) return void fill(enter, t("sign_in.wait", { left }));
    clearInterval(timer);
    enter.disabled = false;
    fill(enter, t("sign_in.enter"));
    outcome.clear();
  };
  const timer = setInterval(tick, 1000);
  tick();
}
