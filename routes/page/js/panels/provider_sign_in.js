/** Sign-in at an OpenID provider: only the page that has begun it, whose key never leaves it otherwise, can finish it. */

import { get, keptSignIn, LOGOUT, post } from "../feed/api.js";
import { fill } from "../dom/elements.js";
import { actionButton } from "../dom/forms.js";
import { readPreference, readStored, writePreference, writeStored } from "../dom/storage.js";
import { t } from "../dom/more_texts.js";

const KEY = "oidc-key"; // the preference with the key: the provider may lead back to another tab
const PLACE = "oidc-place"; // what the address named before

/** Shows the button, where the server has a provider, and finishes the sign-in that `answer` is of. */
export async function showProvider(place, outcome, answer) {
  const { label } = await get("/oidc");
  if (!label) return;
  fill(
    place,
    actionButton(t("sign_in.oidc", { label }), outcome, () => begin(outcome), { class: "primary" }),
  );
  // Only a code: a link from elsewhere must not put words of its own here.
  const [reason] = /^[a-z_]{1,60}$/.exec(answer?.error ?? "") ?? [];
  if (reason) outcome.show(t("sign_in.oidc.denied", { reason }), "problem");
  else if (answer) await finish(answer, outcome).catch((error) => outcome.show(error.message, "problem"));
}

async function begin(outcome) {
  const key = readPreference(KEY) ?? newKey();
  writePreference(KEY, key);
  writeStored(PLACE, location.hash);
  const { url } = await post("/oidc/begin", { key });
  outcome.show(t("sign_in.oidc.wait"));
  location.assign(url);
}

async function finish({ state = "", code = "", iss }, outcome) {
  outcome.show(t("sign_in.oidc.wait"));
  const body = { key: readPreference(KEY) ?? newKey(), state, code, ...(iss && { iss }) };
  const { key, logout } = await post("/oidc/finish", body);
  writePreference(LOGOUT, logout);
  keptSignIn.set(key);
  history.replaceState(null, "", location.pathname + (readStored(PLACE) ?? ""));
  writeStored(PLACE, null);
  location.reload();
}

const newKey = () => Array.from(crypto.getRandomValues(new Uint8Array(32)), hex).join("");
const hex = (byte) => byte.toString(16).padStart(2, "0");
