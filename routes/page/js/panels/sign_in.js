/** Signing in and out, for servers with tokens. The token is kept in this tab only. */

import { onSignedOut, request, token } from "../feed/api.js";
import { fill, h } from "../dom/elements.js";
import { Outcome, runOnce, field } from "../dom/forms.js";
import { clearStored, writeStored, readStored } from "../dom/storage.js";

const WHY = "signed-out"; // why the user was signed out, for the form shown after the reload
export const SIGNED_OUT = "You have signed out.";
const IN_ADDRESS = /[?&#](access_)?token=/i;
const LOCAL = /^#token=(dgm_local_[\w-]{37})$/;
const TOKEN = /^[\x21-\x7e]+$/; // characters that a header can carry

export function start(page) {
  const hint = takeTokenFromAddress();
  onSignedOut((message) => onUnauthenticated(page, message, hint));
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
  return "A token in the address is ignored and may have been exposed. Paste it here, and consider creating a new one.";
}

/** The server rejects the token: removes all that the page has shown, also from memory, and shows the sign-in form. */
function onUnauthenticated(page, message, hint) {
  if (deferred || !page.at("sign-in").hidden) return;
  if (token.get() || page.store.get("me")) return void signOut(message);
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

/** Forgets the token and all that was shown, and reloads; the sign-in form shows `why`. */
export function signOut(why, address = null) {
  if (signingOut) return;
  signingOut = true;
  token.forget();
  clearStored();
  writeStored(WHY, why);
  document.title = "dragoman";
  for (const shown of document.querySelectorAll("#app, dialog")) shown.remove();
  if (address !== null) history.replaceState(null, "", address);
  location.reload();
}

/** The first sentence: the rest is advice for the command line. */
const firstSentence = (message) => message.split(/(?<=\.) /)[0];

/** Whether a token is used, rather than local access without one. */
export const isSignedIn = () => Boolean(token.get());

function show(page, why) {
  page.feed.close();
  page.at("app").hidden = true;
  const gate = page.at("sign-in");
  const told = why && h("p", { class: why === SIGNED_OUT ? "sign-in-note" : "problem", role: "alert" }, why);
  const what = "An agent server: a model works for you while you watch. This server requires a token.";
  const { form, secret } = signInForm();
  const title = h("h1", { id: "sign-in-title" }, "dragoman");
  fill(
    gate,
    h("main", { class: "sign-in-box", "aria-labelledby": title.id }, title, told, h("p", {}, what), form, about()),
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
  const enter = h("button", { type: "submit", class: "primary" }, "Sign in");
  const form = h("form", { class: "form" }, name, field("Token", secret), enter, outcome.element);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submitToken(secret, enter, outcome);
  });
  return { form, secret };
}

function about() {
  return h(
    "div",
    { class: "faint stack" },
    h("p", {}, "The operator of the server creates tokens with: ", h("code", {}, "dragoman token create --name NAME")),
    h(
      "p",
      {},
      "The token is stored in this tab until you close it or sign out. Other tabs have to sign in separately.",
    ),
  );
}

async function submitToken(secret, enter, outcome) {
  const given = secret.value.trim();
  if (!TOKEN.test(given))
    return void outcome.show(
      "This is not a valid token: tokens contain only letters, digits and punctuation. Copy it again.",
      "problem",
    );
  const known = await runOnce(enter, outcome, () => checkToken(given, enter, outcome));
  if (!known) return void secret.select();
  token.set(given);
  location.reload();
}

/** Validates the token against the server. Raises Refused. */
async function checkToken(given, enter, outcome) {
  try {
    await request("GET", "/approvals", { headers: { authorization: `Bearer ${given}` } });
    return true;
  } catch (error) {
    if (error.status === 429) countDown(error, enter, outcome);
    if (error.status === 401) error.message = `${firstSentence(error.message)} Copy it again, or request a new one.`;
    throw error;
  }
}

/** Rate-limited: the button shows when it can be used again. */
function countDown({ more }, enter, outcome) {
  const until = (more.reset ?? Date.now() / 1000 + 60) * 1000;
  enter.disabled = true;
  const tick = () => {
    const left = Math.ceil((until - Date.now()) / 1000);
    if (left > 0) return void fill(enter, `Sign in (in ${left} s)`);
    clearInterval(timer);
    enter.disabled = false;
    fill(enter, "Sign in");
    outcome.clear();
  };
  const timer = setInterval(tick, 1000);
  tick();
}
