/** The form of an elicitation: fields from the MCP server's schema, or a page to open. */

import { h } from "../dom/elements.js";
import { escapeLine, escapeText } from "../text/exact_text.js";
import { parseNumber } from "../text/json.js";
import { pieces, t } from "../dom/more_texts.js";

let made = 0;

/** Invalid input of a form; `field` is the element. */
export class InvalidInput extends Error {
  constructor(message, field) {
    super(message);
    this.field = field;
  }
}

/** `{element, focus(), value()}`: the message and a field for each answer. `value()` raises InvalidInput. */
export function questionForm({ message, schema, url }) {
  const said = h("p", { class: "approval-question-message", dir: "auto" }, escapeText(String(message ?? "")));
  if (url !== undefined)
    return { element: h("div", {}, said, pageToOpen(String(url))), focus: () => undefined, value: () => ({}) };
  const needed = Array.isArray(schema?.required) ? schema.required : [];
  const fields = Object.entries(isObject(schema?.properties) ? schema.properties : {}).map(([name, field]) =>
    fieldOf(name, isObject(field) ? field : {}, needed.includes(name)),
  );
  const elements = fields.map((field) => field.element);
  const values = () => fields.map((field) => [field.name, field.value()]);
  return {
    element: h("div", {}, said, h("div", { class: "approval-fields" }, elements)),
    focus: () => fields[0]?.input.focus(),
    value: () => Object.fromEntries(values().filter(([, value]) => value !== undefined)),
  };
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** Shows the host separately: a URL can be written so that it suggests another host. */
function pageToOpen(written) {
  const url = URL.canParse(written) ? new URL(written) : null;
  const address = h("code", { dir: "ltr", class: "exact-word" }, escapeText(written));
  if (url?.protocol !== "https:") return h("p", {}, pieces("approvals.page.blocked", { address }));
  const props = { href: url.href, target: "_blank", rel: "noopener noreferrer" };
  return [
    h("p", {}, pieces("approvals.page", { host: h("strong", { dir: "ltr" }, url.host), address })),
    h("p", {}, h("a", props, t("approvals.page.open", { host: url.host }))),
  ];
}

/** Titles of values: `oneOf`/`anyOf` with `const`, or `enum` with `enumNames`. */
function choicesOf(field) {
  const rows = field.oneOf ?? field.anyOf;
  if (Array.isArray(rows)) return rows.filter(isObject).map((row) => [row.const, row.title ?? row.const]);
  if (!Array.isArray(field.enum)) return null;
  return field.enum.map((value, place) => [value, field.enumNames?.[place] ?? value]);
}

function fieldOf(name, field, needed) {
  const id = `answer-${++made}`;
  const props = { id, "aria-describedby": field.description ? `${id}-hint` : null, required: needed };
  const [input, value] = inputOf(field, props, name);
  const optional = needed ? null : h("span", { class: "faint" }, ` ${t("approvals.optional")}`);
  const label = h("label", { for: id }, escapeLine(String(field.title ?? name)), optional);
  const about = { class: "faint", id: `${id}-hint`, dir: "auto" };
  const hint = field.description && h("p", about, escapeText(String(field.description)));
  const kind = field.type === "boolean" ? "approval-field tick" : "approval-field";
  return { name, input, element: h("div", { class: kind }, label, input, hint), value };
}

const INPUTS = { __proto__: null, email: "email", uri: "url", date: "date" };
const NUMBERS = { __proto__: null, integer: "1", number: "any" };

/** The element, and a function for its value: undefined if left out. */
function inputOf(field, props, name) {
  if (field.type === "boolean") {
    const box = h("input", { ...props, required: false, type: "checkbox", checked: field.default === true });
    return [box, () => box.checked];
  }
  if (field.type === "array") return multipleChoice(field, props);
  const choices = choicesOf(field);
  if (choices) return singleChoice(choices, field, props);
  if (NUMBERS[field.type]) return number(field, props, name);
  const type = INPUTS[field.format] ?? "text";
  const input = h("input", { ...props, type, value: field.default ?? "", dir: "auto", autocomplete: "off" });
  return [input, () => (input.value === "" && !props.required ? undefined : input.value)];
}

function number(field, props, name) {
  const { minimum: min, maximum: max } = field;
  const step = NUMBERS[field.type];
  const input = h("input", { ...props, type: "number", step, min, max, value: field.default ?? "" });
  const value = () => {
    if (input.validity.badInput)
      throw new InvalidInput(t("approvals.number.invalid", { name: escapeLine(String(field.title ?? name)) }), input);
    return input.value === "" ? undefined : parseNumber(input.value);
  };
  return [input, value];
}

/** Their places are the values: what is chosen may be any JSON. */
const optionsOf = (choices, usual) =>
  choices.map(([value, title], place) =>
    h("option", { value: place, selected: usual.includes(value) }, escapeLine(String(title))),
  );

function singleChoice(choices, field, props) {
  const options = optionsOf(choices, [field.default]);
  const select = h("select", props, h("option", { value: "" }, t("approvals.choose")), options);
  return [select, () => (select.value === "" ? undefined : choices[Number(select.value)][0])];
}

function multipleChoice(field, props) {
  const choices = choicesOf(isObject(field.items) ? field.items : {}) ?? [];
  const options = optionsOf(choices, Array.isArray(field.default) ? field.default : []);
  const size = Math.min(6, Math.max(2, choices.length));
  const select = h("select", { ...props, multiple: true, size }, options);
  return [select, () => [...select.selectedOptions].map((option) => choices[Number(option.value)][0])];
}
