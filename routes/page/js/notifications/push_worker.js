/**
 * A service worker: shows the server's push messages while no page is open; a click opens the conversation. Of the
 * installed page it also answers when the server does not: with a page that says so. It keeps no answer of the server.
 */

const ICON = "/page/icon.svg";

const DECIDE = "/page/decide.html";
const OFFLINE = "/page/offline.html";
const KEPT = "offline-1"; // the name of the cache; another number fetches its files anew

self.addEventListener("install", (event) => {
  const files = [OFFLINE, "/page/css/tokens.css", "/page/css/base.css", "/page/css/sign_in.css"];
  event.waitUntil(caches.open(KEPT).then((cache) => cache.addAll(files)));
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.destination === "document") event.respondWith(fetch(request).catch(() => caches.match(OFFLINE)));
  else if (request.destination === "style") event.respondWith(fetch(request).catch(() => kept(request)));
});

const kept = async (request) => (await caches.match(request)) ?? Response.error();

self.addEventListener("push", (event) => {
  const { title, body, session, run, call, tag } = event.data.json();
  const data = { session, run, call };
  event.waitUntil(self.registration.showNotification(title, { body, tag, icon: ICON, data }));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(show(event.notification.data));
});

/**
 * An open page shows the conversation: a new one might have to be signed in to. Without one, a call that waits gets a
 * page of its own, which is light. Nothing is decided here: a person sees the exact arguments first.
 */
async function show({ session, run, call }) {
  const [page] = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const place = call ? `${session}/${run}/call=${call}` : session;
  if (!page) return self.clients.openWindow(session ? `${call ? DECIDE : "/"}#${place}` : "/");
  page.postMessage({ session, run, call });
  return page.focus();
}
