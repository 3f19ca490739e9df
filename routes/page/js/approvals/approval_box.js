/** A call that waits for approval, in full, with the buttons to decide it. */

import { post, Refused } from "../feed/api.js";
import { effectOf, isQuestion, isUnboxed, questionOf, reasonOf, renderArguments } from "./call_description.js";
import { startTicking } from "../dom/clock.js";
import { announce, button, fill, h, icon } from "../dom/elements.js";
import { Problem } from "../dom/forms.js";
import { InvalidInput, questionForm } from "./elicitation.js";
import { Origins } from "./origins.js";
import { escapeLine, escapeText } from "../text/exact_text.js";
import { t } from "../dom/more_texts.js";

const URGENT_S = 60;
const COMPARED = /^(write|edit)_file$/; // calls that the server compares with the file that is there
const DECIDED_ELSEWHERE = new Set([404, 409, 410]); // decided elsewhere, expired, or its run has ended
const UNTRUSTED = /conversation holds untrusted text/; // part of the server's reason

const FORMS = new Set(["edit", "session"]); // of decision_forms.js

// from this many seconds on the time left is given in this unit
const UNITS = [
  [2 * 86_400, "days", 86_400],
  [2 * 3_600, "hours", 3_600],
  [URGENT_S, "minutes", 60],
  [0, "seconds", 1],
];

/** "Expires in 5 min." */
function expiry(seconds) {
  const [, unit, span] = UNITS.find(([from]) => seconds >= from);
  return t(`approvals.expires.${unit}`, { count: Math.round(seconds / span) });
}

let made = 0;
let decisionForms = null;

// Calls of other tools that nothing but an approval of each allows.
const isFirm = ({ name, arguments: { action } }) =>
  name === "submit_plan" || (name === "manage_schedules" && action === "add");

export class ApprovalBox {
  close = () => undefined; // stops its clock, if it has one
  #page;
  #tray;
  #sending = false;
  #warned = false;
  #id = `approval-${++made}`;

  /** `tray`: `settle()` after a layout change, `onDecided(box, words)` after the decision. `tools`: GET /tools by name. */
  constructor(row, page, tray, tools) {
    this.#setRow(row, tools);
    this.#page = page;
    this.#tray = tray;
    this.question = isQuestion(row.name) ? questionForm(row.arguments) : null;
    this.element = this.#build();
    this.#show("ask", { moved: false });
    if (COMPARED.test(row.name)) this.#compare();
    if (row.expires_at === null) return; // it never expires
    this.close = startTicking(() => this.#tick());
    this.#tick();
  }

  /** Sorts the arguments in the order of the tool's schema: the server sorts them by name. */
  #setRow(row, tools) {
    const tool = tools.get(row.name);
    const order = Object.keys(tool?.parameters?.properties ?? {});
    const rank = ([key]) => (order.includes(key) ? order.indexOf(key) : order.length);
    const given = Object.entries(row.arguments).sort((one, other) => rank(one) - rank(other));
    Object.assign(this, { tool, row: { ...row, arguments: Object.fromEntries(given) } });
  }

  /** Shows what the call would change, as soon as the server has compared it with the file that is there. */
  async #compare() {
    const { fetchPreview, headingOf, previewElements } = await import("./write_preview.js");
    const preview = await fetchPreview(this.row);
    if (!preview) return;
    this.heading.textContent = headingOf(preview);
    this.compared = (content) => previewElements(preview, content);
    if (this.mode !== "ask") return;
    fill(this.body, this.#content("ask"));
    this.#tray.settle();
  }

  #build() {
    this.left = h("span", { class: "approval-left" });
    this.body = h("div", { class: "approval-body" });
    this.problem = new Problem();
    this.always = h("div", { class: "approval-always" });
    this.foot = h("div", { class: "approval-foot" });
    this.heading = h("h3", { id: this.#id }, questionOf(this.row));
    const name = h("code", { class: "approval-name" }, escapeLine(this.row.name));
    const head = h("header", { class: "approval-head" }, this.heading, name, this.left);
    const props = { class: "approval", role: "group", tabindex: -1, "aria-labelledby": this.#id };
    const parts = [head, this.body, this.problem.element, this.always, this.foot];
    return h("section", { ...props, dataset: { call: this.row.call } }, parts);
  }

  /** Seconds until it expires, by the server's clock. */
  get #seconds() {
    return this.row.expires_at - (Date.now() + this.#tray.skew_ms) / 1000;
  }

  #tick() {
    const left = Math.max(0, Math.ceil(this.#seconds));
    const words = left ? expiry(left) : t("approvals.expired");
    if (this.left.textContent !== words) this.left.textContent = words;
    this.element.classList.toggle("urgent", left < URGENT_S);
    if (left > URGENT_S || this.#warned) return;
    this.#warned = true;
    if (left) announce(t("approvals.expires.soon", { count: left, name: escapeLine(this.row.name) }));
  }

  /** Shows `ask` or one of the forms; `moved`: by an action of the user. */
  #show(mode, { moved = true } = {}) {
    this.mode = this.element.dataset.mode = mode;
    this.problem.show("");
    this.form = this.#form(mode);
    fill(this.body, this.#content(mode));
    fill(this.always, mode === "ask" ? this.#proposals() : null);
    fill(this.foot, this.#buttons(mode));
    if (!moved) return;
    this.#tray.settle();
    if (mode === "ask") this.element.focus();
    else this.form.focus();
  }

  #form(mode) {
    const { name, arguments: given, reason } = this.row;
    const forms = {
      edit: () => decisionForms.editForm(given),
      session: () => decisionForms.sessionForm(name, given, { exactly: UNTRUSTED.test(reason) }),
      deny: () => denyForm(this),
    };
    return forms[mode]?.() ?? null;
  }

  #content(mode) {
    if (this.question) return [this.question.element, this.#facts()];
    if (mode === "edit") return [this.form.element, this.#facts()];
    const given = renderArguments(this.row, new Origins(this.row));
    const parts = [mode === "session" ? this.form.element : null, this.compared?.(given) ?? given, this.#facts()];
    return isFirm(this.row) ? parts.toReversed() : parts; // its times in words first
  }

  /** Sets the tools, which can arrive later than the call. */
  setTools(tools) {
    this.#setRow(this.row, tools);
    this.body.querySelector(".approval-why").replaceWith(this.#facts());
    const had = this.foot.contains(document.activeElement);
    if (this.mode === "ask") this.#show("ask", { moved: false });
    if (had && this.mode === "ask") this.element.focus();
    this.#tray.settle();
  }

  /** One sentence: why it asks, or what becomes of an answer, or that no sandbox holds it. The others are folded. */
  #facts() {
    const server = this.#page.store.get("server") ?? {};
    const about = this.tool?.name.startsWith("mcp__") ? escapeText(this.tool.description) : null;
    const reason = reasonOf(this.row);
    const effect = effectOf(this.row, server, this.tool);
    const first = this.question || isUnboxed(this.row, server) ? effect : reason;
    const facts = [
      [t("approvals.reason"), reason],
      [t("approvals.effect"), effect],
      [t("approvals.description"), about],
    ].filter(([, words]) => words && words !== first);
    const rows = facts.map(([name, words]) => [h("dt", {}, name), h("dd", { dir: "auto" }, words)]);
    const more = h("details", {}, h("summary", {}, t("approvals.details")), h("dl", { class: "approval-facts" }, rows));
    more.open = Boolean(this.body?.querySelector(".approval-why > details[open]"));
    return h("div", { class: "approval-why" }, h("p", { dir: "auto" }, first), rows.length ? more : null);
  }

  /** Whether a grant for the session would have an effect: some tools always require approval. */
  get #canAllowForSession() {
    return this.tool?.approval !== "always" && !isFirm(this.row);
  }

  #buttons(mode) {
    if (mode === "deny") return this.form.element;
    if (this.question) return this.#questionButtons();
    const back = this.#button(t("approvals.back"), "back");
    if (mode === "edit") return [this.#button(t("approvals.approve.edited"), "edited", "primary"), back];
    if (mode === "session") return [this.#button(t("approvals.approve.allowed"), "allowed", "primary"), back];
    return [
      this.#button(t("approvals.approve"), "approve", "primary", "y"),
      this.#canAllowForSession ? this.#button(t("approvals.approve.session"), "session", "", "s") : null,
      Object.keys(this.row.arguments).length ? this.#button(t("approvals.approve.edit"), "edit", "", "e") : null,
      this.#button(t("approvals.deny"), "deny", "danger", "n"),
    ];
  }

  /** A button for each standing permission that the server offers: one click gives it, and approves the call. */
  #proposals() {
    return (this.row.proposals ?? []).map(({ pattern, words }) => {
      const wish = () => ({ decision: "approve", scope: "always", pattern });
      const give = () => this.#sending || this.decide(wish, t("approvals.approved.always"));
      return button(t("approvals.always", { words: escapeText(words) }), give, { class: "proposal", dir: "auto" });
    });
  }

  #questionButtons() {
    const words = this.row.arguments.url === undefined ? t("approvals.answer") : t("approvals.answer.done");
    return [this.#button(words, "answered", "primary"), this.#button(t("approvals.decline"), "denied", "danger")];
  }

  #button(words, action, kind = "", key = null) {
    const hint = key && h("kbd", { "aria-hidden": "true" }, key);
    const label = [action === "approve" ? icon("check") : null, words, hint];
    const props = { class: kind, dataset: { action }, "aria-keyshortcuts": key };
    return button(label, () => this.act(action), props);
  }

  /** Runs the action of a button or a key. */
  act(action) {
    if (this.#sending) return;
    ACTIONS[action](this);
  }

  /** Handles a single key outside text fields. Returns whether it was a shortcut. */
  key(key) {
    if (key === "escape" && this.mode !== "ask") {
      this.act("back");
      return true;
    }
    const action = this.mode === "ask" && !this.question && KEYS[key];
    const offered = action ? this.foot.querySelector(`[data-action="${action}"]`) : null;
    if (offered) this.act(action);
    return Boolean(offered);
  }

  /** The code of the longer forms is loaded with the first of them. */
  async show(mode) {
    if (FORMS.has(mode)) decisionForms ??= await import("./decision_forms.js");
    if (this.element.isConnected) this.#show(mode);
  }

  /** Sends the decision once; on errors the form keeps its input. */
  async decide(makeWish, words) {
    let wish;
    try {
      wish = makeWish();
    } catch (error) {
      if (!(error instanceof InvalidInput)) throw error;
      error.field.focus();
      return this.problem.show(error.message);
    }
    this.#send(true);
    const { run, call } = this.row;
    try {
      await post(`/runs/${encodeURIComponent(run)}/approvals/${encodeURIComponent(call)}`, {
        ...wish,
        door: this.#tray.doorOf(this.row),
      });
      this.#tray.onDecided(this, words, { own: true });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      const outcome = error.more.decision ? error.more : error.message;
      if (DECIDED_ELSEWHERE.has(error.status)) return this.#tray.onDecided(this, outcome, { own: false });
      this.#send(false);
      this.problem.show(error.message);
    }
  }

  #send(under_way) {
    this.#sending = under_way;
    this.element.setAttribute("aria-busy", String(under_way));
    // A disabled button would lose the focus.
    for (const one of this.element.querySelectorAll("button")) one.ariaDisabled = under_way ? "true" : null;
  }
}

const KEYS = { __proto__: null, y: "approve", s: "session", e: "edit", n: "deny" };

const ACTIONS = {
  __proto__: null,
  approve: (box) => box.decide(() => ({ decision: "approve" }), t("approvals.approved")),
  session: (box) => box.show("session"),
  edit: (box) => box.show("edit"),
  deny: (box) => box.show("deny"),
  back: (box) => box.show("ask"),
  allowed: (box) => box.decide(() => allowed(box.form.value()), t("approvals.approved.allowed")),
  edited: (box) => box.decide(() => changedTo(box.form.value()), t("approvals.approved.edited")),
  answered: (box) => box.decide(() => changedTo(box.question.value()), t("approvals.answered")),
  denied: (box) => box.decide(() => denied(box.form?.value()), t("approvals.denied")),
};

const allowed = (bounds) => ({ decision: "approve", scope: "session", ...bounds });
const changedTo = (given) => ({ decision: "approve", ...(given && { arguments: given }) });
const denied = (note) => ({ decision: "deny", ...(note && { note }) });

/** An optional reason for a denial; Enter submits it. */
function denyForm(box) {
  const input = h("input", {
    type: "text",
    maxlength: 2000,
    dir: "auto",
    placeholder: t("approvals.deny.reason.hint"),
    "aria-label": t("approvals.deny.reason"),
    autocomplete: "off",
  });
  const onsubmit = (event) => {
    event.preventDefault();
    box.act("denied");
  };
  const back = button(t("approvals.back"), () => box.act("back"));
  const deny = h("button", { class: "danger" }, t("approvals.deny"));
  const element = h("form", { class: "deny-form", onsubmit }, input, deny, back);
  return { value: () => input.value.trim() || null, focus: () => input.focus(), element };
}
