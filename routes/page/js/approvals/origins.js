/** Where the arguments of a call come from: their parts, coloured by source and numbered, and the list of the sources. */

import { button, h } from "../dom/elements.js";
import { t, ts } from "../dom/texts.js";
import { escapeLine, escapeText } from "../text/exact_text.js";

const KINDS = ["person", "operator", "client", "result", "memory", "document", "file", "session", "model"];
const SOURCES = { __proto__: null, ...ts("origins.from", KINDS) };
const OWN = new Set(["person", "operator"]);
const TOOL = /^the result of (.+)$/; // in the server's words for a result
const ASTRAL = /[\uD800-\uDFFF]/;

let made = 0;

const colourOf = ({ kind, untrusted }) => (untrusted ? "untrusted" : OWN.has(kind) ? "own" : "other");
// Own words that stand there to the letter hide that untrusted text has them as well; the list has both.
const rankOf = (span) => (OWN.has(span.kind) && span.exact ? 0 : span.untrusted ? 1 : 2);

export class Origins {
  #sources = new Map();
  #spans;
  #id = `origins-${++made}`;

  /** `row`: a waiting call. */
  constructor({ origins = [], arguments: given }) {
    this.given = given;
    this.#spans = [...origins].sort((one, other) => rankOf(one) - rankOf(other));
    for (const span of origins) this.#source(span).places.add(nameOf(span.argument));
  }

  #source(span) {
    const key = [span.kind, span.source, span.place, span.untrusted].join("\n");
    if (!this.#sources.has(key)) this.#sources.set(key, { span, number: this.#sources.size + 1, places: new Set() });
    return this.#sources.get(key);
  }

  /** Draws parts of the text that the argument is shown as: `draw(from, to)` returns nodes; null without any marks. */
  drawing(name, text) {
    const value = this.given[name];
    const marks = typeof value === "string" ? this.#marksOf(pointerOf(name), value) : this.#marksBelow(name, text);
    if (!marks.length) return null;
    const edges = [...new Set(marks.flatMap(({ start, end }) => [start, end]))].sort((one, other) => one - other);
    return (from, to) => {
      const cuts = [from, ...edges.filter((edge) => edge > from && edge < to), to];
      return cuts.slice(1).map((end, at) => {
        const mark = marks.find((one) => one.start <= cuts[at] && one.end >= end);
        const words = escapeText(text.slice(cuts[at], end));
        return mark && words ? this.#mark(mark.span, words) : words;
      });
    };
  }

  #marksOf(pointer, text, offset = 0) {
    return this.#spans
      .filter((span) => span.argument === pointer)
      .map((span) => ({ span, start: offset + unitsIn(text, span.start), end: offset + unitsIn(text, span.end) }));
  }

  /** Marks in the JSON of a list or an object: of texts that have escapes there the whole is marked. */
  #marksBelow(name, json) {
    const own = pointerOf(name);
    const found = this.#marksOf(own, json).map((mark) => ({ ...mark, end: json.length })); // a number
    const below = new Set(this.#spans.map((span) => span.argument).filter((one) => one.startsWith(`${own}/`)));
    for (const pointer of below) {
      const value = pointer.endsWith("#") ? keyOf(pointer) : valueAt(this.given, pointer);
      const written = JSON.stringify(value) ?? "";
      const plain = written === `"${value}"`;
      for (let at = json.indexOf(written); written && at >= 0; at = json.indexOf(written, at + written.length)) {
        const marks = this.#marksOf(pointer, plain ? value : "", at + 1);
        found.push(...(plain ? marks : marks.map(({ span }) => ({ span, start: at, end: at + written.length }))));
      }
    }
    return found.sort((one, other) => rankOf(one.span) - rankOf(other.span));
  }

  #mark(span, words) {
    const { number } = this.#source(span);
    const about = { title: wordsOf(span), "aria-describedby": `${this.#id}-${number}`, tabindex: 0 };
    return h("mark", { class: `origin ${colourOf(span)}`, dataset: { origin: number }, ...about }, words);
  }

  /** The sources with the names of the arguments, or null. */
  list() {
    if (!this.#sources.size) return null;
    const rows = [...this.#sources.values()].map((one) => this.#row(one));
    return h("div", { class: "origins" }, h("h4", {}, t("origins.title")), h("ul", {}, rows));
  }

  #row({ span, number, places }) {
    const sign = h("span", { class: `origin ${colourOf(span)}`, dataset: { origin: number } }, colourWord(span));
    const names = t("origins.in", { arguments: [...places].map(escapeLine).join(", ") });
    const words = [
      h("span", { id: `${this.#id}-${number}` }, wordsOf(span)),
      " ",
      h("span", { class: "faint" }, names),
    ];
    return h("li", {}, sign, " ", words, " ", cardOf(span) ? jump(span) : null);
  }
}

const cardOf = ({ kind, source }) =>
  OWN.has(kind) || !source ? null : document.querySelector(`#conversation .card[data-call="${CSS.escape(source)}"]`);

function jump(span) {
  const show = () => {
    const card = cardOf(span);
    card?.dispatchEvent(new Event("reveal"));
    card?.scrollIntoView({ block: "center" });
    card?.querySelector("button, a, summary")?.focus({ preventScroll: true });
  };
  return button(t("origins.show"), show, {
    class: "quiet",
    "aria-label": t("origins.show.of", { source: wordsOf(span) }),
  });
}

const COLOURS = { __proto__: null, ...ts("origins.colour", ["own", "untrusted", "other"]) };
const colourWord = (span) => COLOURS[colourOf(span)];

function wordsOf(span) {
  const name = TOOL.exec(span.place)?.[1];
  const words = name ? t("origins.result", { source: SOURCES[span.kind], name: escapeLine(name) }) : SOURCES[span.kind];
  return span.untrusted ? t("origins.untrusted", { source: words }) : words;
}

const unescaped = (part) => part.replace(/~1/g, "/").replace(/~0/g, "~");
const pointerOf = (name) => `/${name.replace(/~/g, "~0").replace(/\//g, "~1")}`;
const nameOf = (pointer) => unescaped(pointer.split("/")[1] ?? "");
const keyOf = (pointer) => unescaped(pointer.slice(pointer.lastIndexOf("/") + 1, -1));

function valueAt(given, pointer) {
  return pointer
    .split("/")
    .slice(1)
    .reduce((value, part) => value?.[unescaped(part)], given);
}

/** The server counts characters, and JavaScript has two units for some. */
function unitsIn(text, characters) {
  return ASTRAL.test(text) ? [...text].slice(0, characters).join("").length : characters;
}
