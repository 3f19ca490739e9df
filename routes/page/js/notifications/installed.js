/** The installed page: its worker shows a page of its own while the server cannot be reached. */

import { register } from "./worker.js";

const APP = matchMedia("(display-mode: standalone)");

/** Registers the worker once the page is installed, or runs as an app; other visitors need none. */
export function start() {
  if (!("serviceWorker" in navigator && window.isSecureContext)) return;
  if (APP.matches) install();
  addEventListener("appinstalled", install);
}

const install = () => register({ scope: "/" }).catch(() => null); // storage may be off: the page works without
