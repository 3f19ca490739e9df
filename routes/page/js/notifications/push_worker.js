/** A service worker: shows the server's push messages while no page is open; a click opens the conversation. */

const ICON = "/page/icon.svg";

self.addEventListener("push", (event) => {
  const { title, body, session, tag } = event.data.json();
  event.waitUntil(self.registration.showNotification(title, { body, tag, icon: ICON, data: { session } }));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(show(event.notification.data.session));
});

/** An open page shows the conversation: a new one might have to be signed in to. */
async function show(session) {
  const [page] = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  if (!page) return self.clients.openWindow(session ? `/#${session}` : "/");
  page.postMessage({ session });
  return page.focus();
}
