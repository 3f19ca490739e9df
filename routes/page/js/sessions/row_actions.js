/** What a conversation in the list does, and its menu. Each raises errors of its requests, which the row shows. */

import { patch, remove } from "../feed/api.js";
import { announce, confirmDialog, h, focusMessageBox } from "../dom/elements.js";
import { t } from "../dom/more_texts.js";

const LIT_MS = 2500;
const at = (session) => `/sessions/${encodeURIComponent(session.id)}`;

/** Opens it at the turn in which a search has found its words. */
export async function showTurn(page, _row, id, run) {
  const { conversation } = page;
  await conversation.open(id);
  const view = await conversation.turn(run);
  if (view && page.store.get("session") === id) showPlace(page, view.element);
}

/** Scrolls to an element of the conversation, and lights it up for a while. */
export function showPlace({ conversation, panel }, element) {
  if (conversation.element.closest("[inert]")) panel.close(); // it lies over the conversation
  conversation.follower.following = false;
  element.closest("[hidden]")?.dispatchEvent(new Event("reveal")); // it is among folded steps
  element.tabIndex = -1;
  element.focus({ preventScroll: true });
  element.scrollIntoView({ block: "start" });
  element.classList.add("found-turn");
  setTimeout(() => element.classList.remove("found-turn"), LIT_MS);
}

/** Changes its place in the list; `done` is the key of the text that says so. */
export async function change(page, { session }, fields, done = null) {
  await patch(at(session), fields);
  if (done) announce(t(done));
  page.sessions.refresh(0);
  if (fields.archived) page.sessions.search.focus(); // the row goes
}

export const move = (page, { session }) => page.sessions.folderAction("move", session);

export const exported = async (_page, { session }, form) => (await import("./export.js")).save(session.id, form);

export const share = async (_page, { session }) => (await import("./share.js")).share(session);

export async function label(page, { session }) {
  const { chooseLabels } = await import("./labels.js");
  if (await chooseLabels(session)) page.sessions.refresh();
}

export async function options(page, { session, more }) {
  const { toggle } = await import("../panels/conversation/settings.js");
  page.drawer.close();
  toggle(page, more, session);
}

export async function deleted(page, { session }) {
  const title = h("p", { class: "dialog-title", dir: "auto" }, session.title || t("list.untitled"));
  const content = [title, h("p", {}, t("list.delete.warning"))];
  const words = { no: t("list.cancel"), yes: t("list.delete") };
  if (!(await confirmDialog(t("list.delete.ask"), content, words))) return;
  await remove(`${at(session)}?branches=all`);
  announce(t("list.deleted"));
  if (page.store.get("session") === session.id) page.conversation.open(null);
  page.sessions.refresh();
  focusMessageBox();
}
