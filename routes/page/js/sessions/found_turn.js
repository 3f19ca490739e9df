/** Opens a conversation at the turn in which a search has found its words. */

const LIT_MS = 2500;

export async function showTurn(page, session, run) {
  const { conversation } = page;
  await conversation.open(session);
  const view = await conversation.turn(run);
  if (!view || page.store.get("session") !== session) return;
  conversation.follower.following = false;
  view.element.tabIndex = -1;
  view.element.focus({ preventScroll: true });
  view.element.scrollIntoView({ block: "start" });
  view.element.classList.add("found-turn");
  setTimeout(() => view.element.classList.remove("found-turn"), LIT_MS);
}
