/** The registration of the one service worker, whose address alone may become a script. */

export const WORKER = "/page/js/notifications/push_worker.js"; // without a version: its address is that of its scope

let policy;

/** By default with the scope of its own folder, for push messages. */
export function register(options) {
  policy ??= window.trustedTypes?.createPolicy("push-worker", { createScriptURL: () => WORKER });
  return navigator.serviceWorker.register(policy?.createScriptURL("") ?? WORKER, options);
}
