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
  return {
    element: h(
      "div",
      {},
      said,
      h(
        "div",
        { class: "approval-fields" },
        fields.map((field) => field.element),
      ),
    ),
    focus: () => fields[0]?.input.focus(),
    value: () =>
      Object.fromEntries(fields.map((field) => [field.name, field.value()]).filter(([, value]) => value !== undefined)),
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
  const words = [
    escapeLine(String(field.title ?? name)),
    needed ? null : h("span", { class: "faint" }, ` ${t("approvals.optional")}`),
  ];
  const hint =
    field.description &&
    h("p", { class: "faint", id: `${id}-hint`, dir: "auto" }, escapeText(String(field.description)));
  const label = h("label", { for: id }, words);
  const element = h(
    "div",
    { class: field.type === "boolean" ? "approval-field tick" : "approval-field" },
    label,
    input,
    hint,
  );
  return { name, input, element, value };
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
  const input = h("input", {
    ...props,
    type: INPUTS[field.format] ?? "text",
    value: field.default ?? "",
    dir: "auto",
    autocomplete: "off",
  });
  return [input, () => (input.value === "" && !props.required ? undefined : input.value)];
}

function number(field, props, name) {
  const { minimum: min, maximum: max } = field;
  const input = h("input", {
    ...props,
    type: "number",
    step: NUMBERS[field.type],
    min,
    max,
    value: field.default ?? "",
  });
  return [
    input,
    () => {
      if (input.validity.badInput)
        throw new InvalidInput(t("approvals.number.invalid", { name: escapeLine(String(field.title ?? name)) }), input);
      return input.value === "" ? undefined : parseNumber(input.value);
    },
  ];
}

function singleChoice(choices, field, props) {
  const select = h("select", props, h("option", { value: "" }, t("approvals.choose")));
  choices.forEach(([value, title], place) => {
    select.append(h("option", { value: place, selected: value === field.default }, escapeLine(String(title))));
  });
  return [select, () => (select.value === "" ? undefined : choices[Number(select.value)][0])];
}

function multipleChoice(field, props) {
  const choices = choicesOf(isObject(field.items) ? field.items : {}) ?? [];
  const usual = Array.isArray(field.default) ? field.default : [];
  const select = h("select", { ...props, multiple: true, size: Math.min(6, Math.max(2, choices.length)) });
  choices.forEach(([value, title], place) => {
    select.append(h("option", { value: place, selected: usual.includes(value) }, escapeLine(String(title))));
  });
  return [select, () => [...select.selectedOptions].map((option) => choices[Number(option.value)][0])];
}
