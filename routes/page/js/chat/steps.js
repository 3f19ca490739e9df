/** The calls of a run that has ended as one line above them: how many steps, how long they took, and what they did. */

import { formatDuration } from "../dom/clock.js";
import { button, h, hasSelection, icon } from "../dom/elements.js";
import { t } from "../dom/texts.js";

const LEAST = 2; // calls; one is a line already
const SHORT = 400; // characters of a text between two calls; a longer one is an answer of its own
const LARGE = "pre, table, math, img"; // and so is one with these

// tool -> what it has done; others were used
const DEEDS = {
  __proto__: null,
  ...{ bash: "ran", python: "ran", edit_file: "edited", write_file: "wrote", read_file: "read" },
  ...{ web_search: "searched", search_files: "searched", recall_history: "searched" },
};

const OF_FILES = new Set(["edited", "wrote", "read"]);

/** Folds the calls of a run, with the thoughts and short texts between them; not where a person reads. */
export function foldSteps({ view, cards }) {
  for (const { steps, members } of groupsOf(view.body, new Map(cards.map((card) => [card.element, card])))) {
    if (steps.filter((card) => card.step.folds).length < LEAST) continue;
    const open = !view.restoring && (steps.some(({ step }) => step.isRead) || members.some(isRead));
    members[0].before(lineOf(steps, members, view, open));
  }
}

/** Calls without an answer or a message of the person between them; what stays in view is no member. */
function groupsOf(body, cards) {
  const groups = [];
  let group = null;
  let between = []; // members, if another call follows
  for (const element of body.children) {
    const card = cards.get(element);
    if (card) {
      if (!group) groups.push((group = { steps: [], members: [] }));
      group.steps.push(card);
      group.members.push(...between.splice(0), ...(card.step.folds ? [element] : []));
    } else if (element.matches(".reasoning")) (group && !between.length ? group.members : between).push(element);
    else if (element.matches(".note:not(:has(button))")) between.push(element);
    else if (group && element.matches(".answer") && isShort(element)) between.push(element);
    else if (element.matches(".answer, .user-message")) [group, between] = [null, []];
  }
  return groups;
}

const isRead = (member) => member.contains(document.activeElement) || hasSelection(member);
const isShort = (answer) => answer.textContent.length <= SHORT && !answer.querySelector(LARGE);

function lineOf(steps, members, view, startsOpen) {
  const failed = steps.filter((card) => card.step.failed).length;
  const time = formatDuration(steps.reduce((seconds, card) => seconds + card.step.seconds, 0));
  const words = [
    h("b", {}, t("steps.took", { count: steps.length, time })),
    h("span", {}, deedsOf(steps)),
    failed ? h("span", { class: "wrong" }, t("steps.failed", { count: failed })) : null,
  ];
  const show = (open) => {
    if (open) view.page.conversation.follower.following = false; // the line stays where it is
    line.setAttribute("aria-expanded", String(open));
    for (const member of members) member.hidden = !open;
  };
  const toggle = () => show(line.getAttribute("aria-expanded") === "false");
  const line = button([icon("right"), ...words], toggle, { class: "steps-line", "aria-expanded": String(startsOpen) });
  for (const member of members) {
    member.hidden = !startsOpen;
    member.addEventListener("reveal", () => show(true)); // a jump leads there
  }
  return line;
}

/** "Ran 3 commands, edited 2 files": files are counted once. */
function deedsOf(steps) {
  const done = Map.groupBy(
    steps.filter((card) => card.step.folds),
    ({ name }) => DEEDS[name] ?? "used",
  );
  const words = [...done].map(([deed, cards]) => {
    const count = OF_FILES.has(deed) ? new Set(cards.map(({ step }) => step.key)).size : cards.length;
    return t(`steps.${deed}`, { count });
  });
  const all = words.join(", ");
  return all.slice(0, 1).toUpperCase() + all.slice(1);
}
