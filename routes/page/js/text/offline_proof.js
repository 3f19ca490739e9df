/**
 * Whether this browser keeps a frame with `Connection-Allowlist: ()` offline, WebRTC, preconnects and host names
 * included. It is tried, not guessed by the browser's name: from an empty frame of ours that has the header
 * (frame/probe.html) the page's own file cannot be fetched, and without the header it can.
 */

import { h } from "../dom/elements.js";

const PROBE = new URL("../../frame/probe.html", import.meta.url).href;
const LONGEST_MS = 5_000;
let proof = null;

/** Resolves to true once it is proven; what could not be tried now is tried again the next time. */
export function heedsAllowlist() {
  proof ??= prove().then((proven) => {
    if (!proven) proof = null;
    return proven;
  });
  return proof;
}

async function prove() {
  const frame = h("iframe", { src: PROBE, hidden: true, title: "" });
  const loaded = new Promise((resolve) => frame.addEventListener("load", resolve, { once: true }));
  document.body.append(frame);
  try {
    if (!(await inTime(loaded.then(() => frame.contentWindow.location.href === PROBE)))) return false;
    return !(await reaches(frame.contentWindow)) && (await reaches(window));
  } catch {
    return false; // an error page is shown there instead, which the page may not look into
  } finally {
    frame.remove();
  }
}

/** Without an answer in time nothing is proven: false for the page, and true for the frame that has the header. */
function reaches(realm) {
  const asked = realm.fetch(PROBE, { method: "HEAD", cache: "no-store" });
  const answered = asked.then((answer) => answer.ok).catch(() => false);
  return inTime(answered, realm !== window);
}

const inTime = (wanted, otherwise = false) =>
  Promise.race([wanted, new Promise((resolve) => setTimeout(resolve, LONGEST_MS, otherwise))]);
