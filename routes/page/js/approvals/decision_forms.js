/** Forms for a decision: edited arguments, and what else to allow for the session. */

import { requestedHosts } from "../cards/call_title.js";
import { button, h } from "../dom/elements.js";
import { InvalidInput } from "./elicitation.js";
import { escapeLine, invisibleIn, withoutInvisible } from "../text/exact_text.js";
import { isExactInteger, parseJSON } from "../text/json.js";
import { t } from "../dom/more_texts.js";

const PLAIN = { spellcheck: "false", autocapitalize: "off", autocomplete: "off", dir: "ltr" };

let made = 0;
const newId = (name) => `${name}-${++made}`;

/** Fields for all arguments: strings as text, others as JSON. `value()`: the edited arguments, or null if unchanged. */
export function editForm(given) {
  const fields = Object.entries(given).map(([name, value]) => editField(name, value));
  const elements = fields.map((field) => field.element);
  return {
    element: h("div", { class: "approval-fields" }, elements),
    focus: () => (fields.find((field) => field.main) ?? fields[0])?.input.focus(),
    value() {
      if (!fields.some((field) => field.touched())) return null;
      return Object.fromEntries(fields.map((field) => [field.name, field.value()]));
    },
  };
}

const MOST_ROWS = 14,
  FOLDED_AT = 84; // approximate characters per row

const rowsOf = (text) => text.split("\n").reduce((rows, line) => rows + 1 + Math.floor(line.length / FOLDED_AT), 0);

function editField(name, value) {
  const isText = typeof value === "string";
  const shown = isText ? value : JSON.stringify(value, null, 2);
  const id = newId("edit");
  const rows = Math.min(MOST_ROWS, rowsOf(shown));
  const input = h("textarea", { id, class: "exact-input", rows, value: shown, ...PLAIN });
  const first = input.value; // as the browser normalises it (newlines)
  const kind = isText ? null : h("span", { class: "faint" }, ` ${t("approvals.json")}`);
  const label = h("label", { for: id }, escapeLine(name), kind);
  return {
    name,
    input,
    main: isText && (shown.length > 40 || shown.includes("\n")),
    element: h("div", { class: "approval-field" }, label, input, invisibleNote(input)),
    touched: () => input.value !== first,
    value() {
      if (input.value === first) return value;
      return isText ? input.value : parsed(name, input);
    },
  };
}

function parsed(name, input) {
  try {
    JSON.parse(input.value, finite);
    return parseJSON(input.value);
  } catch (error) {
    throw new InvalidInput(t("approvals.json.invalid", { name, error: error.message }), input);
  }
}

/** JSON.stringify would write null. */
function finite(_, value) {
  if (typeof value === "number" && !Number.isFinite(value)) throw new SyntaxError(t("approvals.json.number"));
  return value;
}

/** Text boxes do not show invisible characters: a note below lists them and offers to remove them. */
function invisibleNote(input) {
  const words = h("span", {});
  const draw = () => {
    const found = invisibleIn(input.value);
    note.hidden = !found.length;
    words.textContent = t("approvals.invisible", { codes: found.slice(0, 8).join(", ") });
  };
  const clean = button(t("approvals.invisible.remove"), () => {
    input.value = withoutInvisible(input.value);
    draw();
    input.focus();
  });
  const note = h("p", { class: "approval-warning" }, words, " ", clean);
  input.addEventListener("input", draw);
  draw();
  return note;
}

const ANY = "*";
const literal = (text) => text.replaceAll(ANY, "[*]");

// The suggested pattern of each argument. The server matches commands word by word.
const PATTERNS = {
  __proto__: null,
  bash: ({ command }) => (command.includes("\n") ? null : { command }),
  python: () => null,
  write_file: ({ path }) => ({ path: literal(path), content: ANY }),
  edit_file: ({ path }) => ({ path: literal(path), old: ANY, new: ANY }),
  web_fetch: ({ url }) => ({ url: withinHost(url) }),
  web_search: () => ({ query: ANY }),
};

function withinHost(url) {
  try {
    return `${literal(new URL(url).origin)}/*`;
  } catch {
    return literal(url);
  }
}

/** A suggested pattern for similar calls; null if there is none. */
function patternOf(name, given) {
  if (!Object.keys(given).length) return null;
  const all = Object.fromEntries(Object.entries(given).map(([key, value]) => [key, literal(serialised(value))]));
  try {
    const own = (PATTERNS[name] ?? (() => all))(given);
    return own && { ...all, ...own };
  } catch {
    return null; // the arguments have unexpected types
  }
}

/** Serialises a value like the server does before matching: JSON in ASCII with sorted keys. */
function serialised(value) {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return `[${value.map(serialisedPart).join(", ")}]`;
  if (value === null || typeof value !== "object" || isExactInteger(value)) return JSON.stringify(value);
  const keys = Object.keys(value).sort();
  return `{${keys.map((key) => `${serialisedPart(key)}: ${serialisedPart(value[key])}`).join(", ")}}`;
}

function serialisedPart(value) {
  if (typeof value !== "string") return serialised(value);
  return JSON.stringify(value).replace(
    /[\u007f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

const HINTS = { __proto__: null, command: t("approvals.pattern.command") };

/** Choices: exactly this call, a pattern (unless `exactly`), or network access to hosts.
 * `value()`: the fields of the grant, as sent. */
export function sessionForm(name, given, { exactly = false } = {}) {
  const group = newId("scope");
  const choices = [
    { words: t("approvals.scope.exact"), fields: [], value: () => ({}) },
    exactly ? null : patternChoice(patternOf(name, given)),
    requestedHosts(given) && NETWORK_TOOLS.has(name) ? hostsChoice(given) : null,
  ].filter(Boolean);
  for (const one of choices) {
    one.input = h("input", { type: "radio", name: group });
    one.more = h("div", { class: "approval-fields", hidden: true }, one.fields);
    one.label = h("label", { class: "approval-choice" }, one.input, h("span", {}, one.words));
  }
  choices[0].input.checked = true;
  const draw = () => choices.forEach(({ more, input, fields }) => (more.hidden = !input.checked || !fields.length));
  for (const { input } of choices) input.addEventListener("change", draw);
  const rows = choices.map(({ label, more }) => [label, more]);
  return {
    element: h("fieldset", { class: "approval-scope" }, h("legend", {}, t("approvals.scope")), rows),
    focus: () => choices[0].input.focus(),
    value: () => choices.find(({ input }) => input.checked).value(),
  };
}

function patternChoice(suggested) {
  if (!suggested) return null;
  const fields = Object.entries(suggested).map(([key, text]) => patternField(key, text));
  const value = () => ({ pattern: Object.fromEntries(fields.map(({ key, input }) => [key, input.value])) });
  return { words: t("approvals.scope.pattern"), fields: fields.map(({ element }) => element), value };
}

const NETWORK_TOOLS = new Set(["bash", "python"]);

/** Editable list of hosts: those of the call, or those found in its text. */
function hostsChoice(given) {
  const id = newId("hosts");
  const inText = () => hostsIn(Object.values(given).filter(isString).join("\n"));
  const named = Array.isArray(given.network) ? given.network : inText();
  const props = { id, class: "exact-input", "aria-describedby": `${id}-hint`, value: named.join("\n"), ...PLAIN };
  const input = h("textarea", { ...props, rows: Math.max(2, Math.min(6, named.length)) });
  const label = h("label", { for: id }, t("approvals.hosts"));
  const about = h("p", { class: "faint", id: `${id}-hint` }, t("approvals.hosts.hint"));
  return {
    words: t("approvals.scope.hosts"),
    fields: [h("div", { class: "approval-field" }, label, input, invisibleNote(input), about)],
    value() {
      const hosts = input.value.split(/[\s,]+/).filter(Boolean);
      if (!hosts.length) throw new InvalidInput(t("approvals.hosts.none"), input);
      return { hosts };
    },
  };
}

const isString = (value) => typeof value === "string";

function hostsIn(text) {
  const found = [...text.matchAll(/\b(?:https?|ssh|git):\/\/(?:[^\s/@'"]*@)?([a-z0-9.-]+\.[a-z0-9-]+)/gi)];
  return [...new Set(found.map(([, host]) => host.toLowerCase()))].slice(0, 20);
}

function patternField(key, text) {
  const id = newId("pattern");
  const input = h("input", { id, class: "exact-input", value: text, "aria-describedby": `${id}-hint`, ...PLAIN });
  const about = h("p", { class: "faint", id: `${id}-hint` }, HINTS[key] ?? t("approvals.pattern.other"));
  const label = h("label", { for: id }, escapeLine(key));
  return { key, input, element: h("div", { class: "approval-field" }, label, input, about) };
}
