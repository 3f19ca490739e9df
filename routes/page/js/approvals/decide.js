/** The page that a push message opens: one waiting call, exactly as it is, and two buttons. It loads little. */

import "../dom/turn_texts.js";
import { get, post } from "../feed/api.js";
import { isQuestion, questionOf, reasonOf, renderArguments } from "./call_description.js";
import { deciderOf } from "../cards/call_title.js";
import { button, fill, h } from "../dom/elements.js";
import { Problem } from "../dom/forms.js";
import { escapeLine } from "../text/exact_text.js";
import { fetchPreview, headingOf, previewElements } from "./write_preview.js";
import { Origins } from "./origins.js";
import { t } from "../dom/texts.js";

const SETTLE_MS = 400; // a second tap, meant for the notification, decides nothing
const WRITES = /^(write|edit)_file$/; // what the server compares with the file that is there
const [, run, call] = /^#ses_\w+\/(\w+)\/call=(.+)$/.exec(location.hash) ?? [];
const path = `/runs/${encodeURIComponent(run)}/approvals/${encodeURIComponent(call)}`;
const main = document.querySelector("main");
const there = h("p", {}, h("a", { href: `/${location.hash}` }, t("decide.open"))); // the same call on the whole page
const problem = new Problem();

async function show() {
  const { approvals } = await get("/approvals");
  const row = approvals.find((one) => one.run === run && one.call === call);
  if (!row) return say(t("decide.gone"));
  const preview = WRITES.test(row.name) ? await fetchPreview(row) : null;
  const given = renderArguments(row, new Origins(row));
  const reason = h("dl", {}, h("dt", {}, t("approvals.reason")), h("dd", { dir: "auto" }, reasonOf(row)));
  document.title = `dragoman: ${escapeLine(row.name)}`;
  fill(
    main,
    h("h1", {}, preview ? headingOf(preview) : questionOf(row)),
    h("p", {}, h("code", {}, escapeLine(row.name))),
    preview ? previewElements(preview, given) : given,
    reason,
    problem.element,
    isQuestion(row.name) ? null : choices(),
    there,
  );
}

function choices() {
  const form = h("div", { class: "decision-choices" });
  const one = (words, decision, kind) =>
    button(t(words), () => decide(form, decision), { class: kind, disabled: true });
  form.append(one("approvals.approve", "approve", "primary"), one("approvals.deny", "deny", "danger"));
  setTimeout(() => enable(form, true), SETTLE_MS);
  return form;
}

function enable(form, on) {
  for (const one of form.children) one.disabled = !on;
}

async function decide(form, decision) {
  enable(form, false);
  problem.show("");
  try {
    await post(path, { decision, door: "push" });
    say(t(decision === "approve" ? "approvals.approved" : "approvals.denied"));
  } catch (error) {
    const { decision: other, by, door } = error.more ?? {};
    if (other) return say(t(`approvals.elsewhere.${other}`, { by: deciderOf(by, door) }));
    enable(form, true);
    failed(error);
  }
}

/** Without a sign-in of this browser the whole page asks for one, and shows the call then. */
function failed(error) {
  if (typeof error.status !== "number") throw error;
  if (error.status === 401) location.replace(there.firstChild.href);
  problem.show(error.message);
}

function say(words) {
  const title = h("h1", { tabindex: -1 }, words);
  fill(main, title, there);
  title.focus();
}

fill(main, there, problem.element);
show().catch(failed);
