/** Below a turn: who answered, when, how long it took, what it used. */

import { h } from "./dom.js";
import { span, when } from "./clock.js";

/** `usage` as `run.finished` tells it, or what is known of a run that failed. */
export function turnFoot({ model, created, seconds, usage }) {
  const date = new Date(created * 1000);
  const facts = [
    h("bdi", {}, model),
    h("time", { datetime: date.toISOString(), title: date.toLocaleString() }, when(created)),
    seconds === null ? null : span(seconds),
    tokens(usage),
    usage?.cost ? h("span", { title: "cost" }, cost(usage.cost)) : null,
  ];
  return h(
    "footer",
    { class: "turn-foot faint" },
    facts.filter(Boolean).map((fact) => h("span", {}, fact)),
  );
}

function tokens(usage) {
  if (usage?.prompt_tokens === undefined) return null;
  const about = usage.measured ? "" : "about ";
  const [read, written] = [usage.prompt_tokens, usage.completion_tokens].map((number) => number.toLocaleString());
  return `${about}${read} tokens read, ${written} written`;
}

/** Prices are in whatever money the server was told them in. */
function cost(amount) {
  return `cost ${amount.toLocaleString(undefined, { maximumSignificantDigits: 2 })}`;
}
