/** The start of a conversation: the demonstration, and examples that fit the available tools. */

import { get } from "../feed/api.js";
import { button, fill, h, icon } from "../dom/elements.js";
import { readPreference, writePreference } from "../dom/storage.js";
import { t } from "../dom/texts.js";
import { firstVisit } from "./first_visit.js";
import { currentModel } from "../panels/models.js";

/** The tool that an example needs, and the key of its message; the first three that fit are shown. */
const EXAMPLES = [
  ["web_search", "search"],
  ["bash", "count"],
  ["list_files", "files"],
  ["python", "primes"],
  ["web_fetch", "fetch"],
  [null, "dns"],
  [null, "haiku"],
  [null, "database"],
];
/** The embedded model, which is tiny, answered these right in 10 of 10 tries in English, and none of those above. */
const SMALL = [
  ["bash", "small.date"],
  [null, "small.sky"],
  [null, "small.french"],
];
const DEMONSTRATION = "dragoman-demonstration"; // the name of a model that is a script
const SEEN = "demonstration"; // the preference that keeps it from being offered again with a real model
const SHOWN = 3;

let hasAppeared = false; // the first one fades in once its content is known, to avoid a jump

/** The element; it follows changes of the model until it is removed. */
export function welcome(page) {
  const examples = h("ul", { class: "examples", "aria-label": t("welcome.examples") });
  const stops = [];
  const offer = h("div", { class: "welcome-demonstration" });
  let drawn = null; // for a small model or not: a button is not replaced under the focus
  const draw = () => {
    if (!offer.isConnected && stops.length) return stops.splice(0).forEach((stop) => stop());
    const small = isEmbedded(page);
    if (!page.store.get("server") || small === drawn) return;
    drawn = small;
    fill(offer, (small || !readPreference(SEEN)) && demonstration(page));
    availableTools().then((tools) =>
      fill(examples, ...fitting(small ? SMALL : EXAMPLES, tools).map((key) => example(t(key), page))),
    );
  };
  // `watch` calls back at once, before the element is on the page, which would stop the watchers.
  queueMicrotask(() => stops.push(...["server", "model", "endpoints"].map((key) => page.store.watch(key, draw))));
  const title = h("h2", { class: "welcome-title" }, t("welcome.title"));
  const props = { class: hasAppeared ? "welcome" : "welcome arriving" };
  const element = h("div", props, title, offer, examples);
  firstVisit(page);
  draw();
  hasAppeared = true;
  return element;
}

/** Whether the next message goes to the embedded model. */
function isEmbedded(page) {
  const { embedded, model } = page.store.get("server") ?? {};
  return Boolean(embedded) && currentModel(page).name === model;
}

/** The button that starts the scripted run. */
function demonstration(page) {
  const watch = () => {
    writePreference(SEEN, "seen");
    page.composer.send(t("welcome.demonstration.message"), { model: DEMONSTRATION, approval: "ask", mode: "" });
  };
  return [
    button([icon("play"), t("welcome.demonstration")], watch, { class: "primary" }),
    h("p", { class: "faint" }, t("welcome.demonstration.hint")),
  ];
}

let known = null;

async function availableTools() {
  known ??= get("/tools").then(
    ({ tools }) => new Set(tools.map(({ name }) => name)),
    () => {
      known = null; // fetched again next time
      return new Set();
    },
  );
  return known;
}

/** The keys of the first examples whose tools are available. */
function fitting(examples, tools) {
  return examples
    .filter(([tool]) => tool === null || tools.has(tool))
    .slice(0, SHOWN)
    .map(([, key]) => `welcome.example.${key}`);
}

function example(words, page) {
  const choose = () => page.composer.fill(words);
  return h("li", {}, button(words, choose));
}
