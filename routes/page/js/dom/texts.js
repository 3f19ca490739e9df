/**
 * The page's texts, in the reader's language: `t("composer.send")`. The tables are routes/texts/<language>.json;
 * English stands in for what another language does not have. more_texts.js adds those that are needed later.
 */

import english from "../../texts/en.json" with { type: "json" };
import { readPreference } from "./storage.js";

export const LANGUAGE = "language"; // the preference; without it the browser's languages decide
export const LANGUAGES = { en: "English", de: "Deutsch" };

export const language = chosenLanguage();
/** As the browser has it: "en-GB", which writes dates and numbers in another way than "en". */
export const locale = navigator.languages.find((tag) => tag.split("-")[0] === language) ?? language;
const texts = {}; // by key, in the reader's language
const plurals = new Intl.PluralRules(language);
document.documentElement.lang = language;
let others = null; // the other tables of the reader's language, on their way or here
Object.assign(texts, await ownTable(""));
addEnglish(english);

/** Adds a table in English, for what the reader's language does not have. */
export function addEnglish(table) {
  Object.assign(texts, { ...table, ...texts });
}

/**
 * Loads the reader's other tables, once. Modules that come later are imported behind it (routes/page/joined.py): WebKit
 * resolves a second import of a module too early while the first one waits within it.
 */
export function ownTexts() {
  others ??= Promise.all([".turns", ".more"].map(async (part) => Object.assign(texts, await ownTable(part))));
  return others;
}

/** The text of a key; `{name}` in it becomes the value of that name, numbers grouped as the language does. */
export function t(key, values = {}) {
  return textOf(key, values).replace(/\{(\w+)\}/g, (whole, name) =>
    name in values ? formatValue(values[name]) : whole,
  );
}

/** The same as children of an element: values may be elements. */
export function pieces(key, values = {}) {
  const parts = textOf(key, values).split(/\{(\w+)\}/);
  return parts.map((part, at) => (at % 2 === 0 ? part : formatValue(values[part]))).filter((part) => part !== "");
}

/** An object of texts by the last word of their keys: `ts("role", ["admin", "user"])`. */
export const ts = (prefix, names) => Object.fromEntries(names.map((name) => [name, t(`${prefix}.${name}`)]));

function textOf(key, { count }) {
  const text = texts[key] ?? key;
  return typeof text === "string" ? text : (text[plurals.select(count)] ?? text.other);
}

const formatValue = (value) => (typeof value === "number" ? value.toLocaleString(locale) : value);

const DECIMAL = new Intl.NumberFormat(locale, { minimumFractionDigits: 1, maximumFractionDigits: 1 });

/** `4.2`: one digit after the point. */
export const formatDecimal = (value) => DECIMAL.format(value);

/** The preference, else the first of the browser's languages that has a table, else English. */
function chosenLanguage() {
  const wanted = [readPreference(LANGUAGE), ...navigator.languages.map((tag) => tag.split("-")[0])];
  return wanted.find((one) => one in LANGUAGES) ?? "en";
}

/** Without its table a page is in English rather than not there. */
async function ownTable(part) {
  if (language === "en") return {};
  try {
    return (await import(`../../texts/${language}${part}.json`, { with: { type: "json" } })).default;
  } catch {
    return {};
  }
}
