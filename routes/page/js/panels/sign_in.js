/** Signing in and out, for servers with tokens: in this tab only, or on this device until the sign-in ends. */

import { keptSignIn, LOGOUT, onSignedOut, remove, SIGN_IN, token } from "../feed/api.js";
import { t } from "../dom/texts.js";
import { clearStored, onPreference, readPreference, readStored, writePreference, writeStored } from "../dom/storage.js";

const WHY = "signed-out"; // why the user was signed out, for the form shown after the reload
const SIGNED_OUT = t("sign_in.out");
const IN_ADDRESS = /[?&#](access_)?token=/i;
const ANSWER = "#oidc?"; // what the provider has answered, in the address
const LOCAL = /^#token=(dgm_local_[\w-]{37})$/;

export function start(page) {
  const answer = takeAnswerFromAddress();
  const hint = takeTokenFromAddress();
  onSignedOut((message) => onUnauthenticated(page, message, hint, answer));
  onPreference(SIGN_IN, (key) => {
    if (key && !page.at("sign-in").hidden)
      location.reload(); // signed in in another tab
    else if (!key && !token.get() && page.store.get("me")) leave(readPreference(WHY) ?? SIGNED_OUT);
  });
  let shownTo = null;
  page.store.watch("me", ({ name }) => {
    if (shownTo !== null && name !== shownTo) clear(null, location.pathname); // a proxy has let another person in
    shownTo = name;
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

/** Removes the provider's answer to a sign-in from the address. It is worth nothing without this page's key. */
function takeAnswerFromAddress() {
  if (!location.hash.startsWith(ANSWER)) return null;
  const answer = Object.fromEntries(new URLSearchParams(location.hash.slice(ANSWER.length)));
  history.replaceState(null, "", location.pathname);
  return answer;
}

/** The server rejects the token: removes all that the page has shown, also from memory, and shows the sign-in form. */
function onUnauthenticated(page, message, hint, answer) {
  if (deferred || !page.at("sign-in").hidden) return;
  if (token.get() || keptSignIn.get() || page.store.get("me")) return void leave(message);
  const why = readStored(WHY);
  writeStored(WHY, null);
  page.feed.close();
  page.at("app").hidden = true;
  page.at("sign-in").hidden = false;
  import("./sign_in_form.js").then(({ show }) => show(page, hint, why, answer));
}

let clearing = false;
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
  const end = readPreference(LOGOUT);
  writePreference(LOGOUT, null);
  leave(SIGNED_OUT, location.pathname, end);
}

/** Signs out here; the sign-in form shows `why`. */
function leave(why, address, end) {
  if (clearing) return;
  token.forget();
  if (keptSignIn.get()) writePreference(WHY, why); // for the other tabs, which the next line sends out
  keptSignIn.set(null);
  clear(why, address, end);
}

/** Forgets all that was shown, and reloads, or goes to `end`. */
function clear(why, address = null, end = null) {
  if (clearing) return;
  clearing = true;
  clearStored();
  writeStored(WHY, why);
  document.title = "dragoman";
  for (const shown of document.querySelectorAll("#app, dialog")) shown.remove();
  if (address !== null) history.replaceState(null, "", address);
  if (end) location.assign(end);
  else location.reload();
}

/** Whether this is the server's own account, without any token; a proxy in front may name other people. */
export const isLocal = (page) => page.store.get("me")?.name === "local";

/** Whether the page has signed in by itself. */
export const isSignedIn = () => Boolean(token.get() ?? keptSignIn.get());
