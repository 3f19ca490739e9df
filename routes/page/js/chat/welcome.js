/** The start of a conversation: the model, and examples that fit the available tools. */

import { get } from "../feed/api.js";
import { fill, h } from "../dom/elements.js";
import { firstVisit } from "./first_visit.js";
import { currentModel } from "../panels/models.js";

/** The tool that an example needs, and its message; the first three that fit are shown. */
const EXAMPLES = [
  ["web_search", "Search the web: what is new in the latest version of Python?"],
  ["bash", "Count from 1 to 10 in the shell, one number a second."],
  ["list_files", "What is in my workspace? Tell me in a few lines."],
  ["python", "Work out the first 20 prime numbers with Python."],
  ["web_fetch", "Read https://example.com and tell me what it says."],
  [null, "Explain how DNS finds an address, in five sentences."],
  [null, "Write a haiku about patience, then say why it is one."],
  [null, "Which questions should I ask before I choose a database?"],
];
const SHOWN = 3;

let hasAppeared = false; // the first one fades in once its content is known, to avoid a jump

/** The element; it follows changes of the model until it is removed. */
export function welcome(page) {
  const who = h("p", { class: "welcome-model-line faint" });
  const examples = h("ul", { class: "examples", "aria-label": "Things to try" });
  const stops = [];
  const draw = () => {
    if (who.isConnected) fill(who, ...answers(page));
    else for (const stop of stops) stop();
  };
  fill(who, ...answers(page));
  // `watch` calls back at once, before the element is on the page, which would stop the watchers.
  queueMicrotask(() => stops.push(...["server", "model", "endpoints"].map((key) => page.store.watch(key, draw))));
  availableTools().then((tools) => fill(examples, ...fittingExamples(tools).map((words) => example(words, page))));
  const title = h("h2", { class: "welcome-title" }, "What would you like to do?");
  const element = h(
    "div",
    { class: hasAppeared ? "welcome" : "welcome arriving" },
    firstVisit(page),
    title,
    who,
    examples,
  );
  hasAppeared = true;
  return element;
}

function answers(page) {
  const { name, endpoint } = currentModel(page);
  if (!name) return [];
  const of = endpoint && endpoint !== "default" ? [" (", h("bdi", {}, endpoint), ")"] : null;
  return ["Model: ", h("bdi", { class: "welcome-model" }, name), of].flat();
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

function fittingExamples(tools) {
  return EXAMPLES.filter(([tool]) => tool === null || tools.has(tool))
    .slice(0, SHOWN)
    .map(([, words]) => words);
}

function example(words, page) {
  return h("li", {}, h("button", { type: "button", onclick: () => page.composer.fill(words) }, words));
}
