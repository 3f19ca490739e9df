/** Builds the page: one store, one feed, and the parts that watch them. */

import * as approvals from "./approvals/approvals.js";
import * as composer from "./chat/composer.js";
import * as gate from "./panels/sign_in.js";
import * as jobs from "./panels/jobs.js";
import * as installed from "./notifications/installed.js";
import * as options from "./panels/conversation/options.js";
import * as models from "./panels/models.js";
import * as sessions from "./sessions/session_list.js";
import * as status from "./panels/status_bar.js";
import "./panels/theme.js";
import * as topbar from "./sessions/topbar.js";
import { nameReader } from "./cards/call_title.js";
import { Conversation } from "./chat/conversation.js";
import { Feed } from "./feed/feed.js";
import { Panel } from "./panels/panel.js";
import { Store } from "./feed/store.js";
import { guarded } from "./dom/errors.js";
import { yieldToBrowser } from "./dom/scheduling.js";
import { t } from "./dom/texts.js";

const TOUCHED = ["pointerdown", "keydown"]; // browsers make up moves of a pointer that rests
const SOON_MS = 20_000;
/** Passed to the `start(page)` of each part. */
const page = {
  store: new Store({ session: null, connection: { state: "connecting" } }),
  at: (id) => document.getElementById(id),
};

page.feed = new Feed(
  (event) => {
    if (event.type === "state") page.store.set(stateOf(event.data));
    else if (event.type === "documents") guarded(() => page.documents?.reload());
    else if (event.type === "branches") branchesChanged(event.data);
    else if (event.run) guarded(() => page.conversation.add(event));
    if (event.type === "file.changed") page.store.set({ changedFile: event.data });
  },
  (state, more) => page.store.set({ connection: { state, ...more } }),
);
page.commands = () => import("./commands/completion.js");
page.workspaceActions = () => import("./workspace/actions.js");
page.panel = new Panel(page.at("panel"));
page.conversation = new Conversation(page);

/** Names the parts of the index in the reader's language. */
function nameParts() {
  const keys = { sidebar: "conversations", conversation: "conversation", approvals: "approvals", panel: "details" };
  for (const [id, key] of Object.entries(keys)) page.at(id).setAttribute("aria-label", t(`page.${key}`));
  page.at("composer").setAttribute("aria-label", t("composer.message"));
  page.at("status").setAttribute("aria-label", t("page.status"));
  document.querySelector(".skip").textContent = t("page.skip");
}

function branchesChanged({ session, branches }) {
  if (session === page.store.get("session")) page.store.set({ branches });
}

function stateOf({ type, ...state }) {
  return state;
}

page.at("conversation").addEventListener("page", ({ detail }) => (detail.page = page)); // parts of texts ask for it
page.store.watch("me", nameReader);
page.store.watch("reminders", async (rows) => rows.length && (await import("./chat/reminders.js")).start(page));
/** What shows turns comes when a person does something, or else a while after the page. */
function prepareSoon() {
  clearTimeout(soon);
  for (const kind of TOUCHED) removeEventListener(kind, prepareSoon);
  page.conversation.prepare().catch(() => null); // it is tried again when it is needed
}
const soon = setTimeout(prepareSoon, SOON_MS);
for (const kind of TOUCHED) addEventListener(kind, prepareSoon, { passive: true });

await yieldToBrowser(); // on a slow phone the modules and the parts together take longer than a key may wait
nameParts();
page.at("app").hidden = false; // shown before the parts start: hidden elements cannot take the focus
for (const part of [gate, topbar, sessions, options, composer, status, models, approvals, jobs, installed])
  guarded(part.start, page);
page.conversation.openAddress();
