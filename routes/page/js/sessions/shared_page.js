/** The page of a shared conversation: it reads one answer and shows it; nothing on it can change anything. */

import { fill, h } from "../dom/elements.js";
import { language, t } from "../dom/more_texts.js";
import { RunView } from "../chat/run_view.js";
import { Store } from "../feed/store.js";
import { replay } from "../chat/run_log.js";
import "../panels/theme.js";

const main = document.getElementById("conversation");
const head = document.querySelector(".shared-head");
const nothing = () => undefined;
const views = new Map(); // by run
const toEnd = () => scrollTo(0, document.body.scrollHeight);
const follower = {
  contentAdded: nothing,
  toEnd,
  settle: toEnd,
  get place() {
    return scrollY;
  },
  holdPosition: (_, place) => scrollTo(0, place),
};

/** As much of the page as the view of a run looks at. */
const page = {
  readOnly: true,
  store: new Store({ session: null, connection: { state: "open" } }),
  at: (id) => document.getElementById(id),
  panel: { toggle: nothing, close: nothing },
  documents: { add: nothing, endRun: nothing, button: () => "" },
  conversation: { follower, turn: (run) => views.get(run) },
  feed: { follow: nothing },
};

async function show() {
  const response = await fetch(location.pathname, { headers: { accept: "application/json" } });
  const found = await response.json();
  if (!response.ok) return refuse(response.status, found.error?.message);
  const title = found.title || t("list.untitled");
  document.title = t("topbar.named", { title });
  const day = new Date(found.updated * 1000).toLocaleDateString(language, { dateStyle: "long" });
  fill(
    head,
    h("h1", { dir: "auto" }, title),
    h("p", { class: "faint" }, t("shared.about", { day })),
    found.earlier && h("p", { class: "faint" }, t("shared.earlier")),
  );
  const list = h("div", { class: "runs" });
  fill(main, list);
  for (const { events, ...asked } of found.runs) {
    const view = new RunView(readable(asked), page);
    view.log = events;
    views.set(asked.run, view);
    list.append(view.element);
    await replay(view, events, () => true);
  }
  addEventListener("popstate", openLinked);
  await openLinked();
}

async function openLinked() {
  const [, run, seq] = /^#(\w+)\/(.*)$/.exec(location.hash) ?? [];
  if (run) (await import("../chat/replay/replay.js")).Replay.openLinked(page, { run, seq });
}

/** Files whose content is not shared are named. */
function readable({ message, ...asked }) {
  if (!message) return { ...asked, message };
  const names = message.attachments.filter(({ sha256 }) => !sha256).map(({ name, media_type }) => name ?? media_type);
  const attachments = message.attachments.filter(({ sha256 }) => sha256);
  const text = [message.text, names.length ? t("shared.files", { names: names.join(", ") }) : ""];
  return { ...asked, message: { ...message, attachments, text: text.filter(Boolean).join("\n\n") } };
}

function refuse(status, message) {
  const gone = status === 404;
  fill(head, h("h1", {}, t(gone ? "shared.gone.title" : "shared.failed")));
  fill(main, h("p", {}, gone ? t("shared.gone") : message));
}

show().catch(() => refuse(0, t("shared.offline")));
