/** Parses the inline content of a paragraph: code, emphasis, links and line breaks, as DOM nodes. */

import { h } from "../dom/elements.js";
import { Runs } from "./emphasis.js";
import { address, link, imageLink, unlinked } from "./links.js";
import { escapeCode, escapeProse } from "../text/escape_invisible.js";

const PLAIN = /(?:(?!https?:\/\/|www\.)[^\\`*_~[\]!<&$\n])+/iy;
const BARE = /(?:https?:\/\/|www\.)[^\s<>[\]`"\u201c\u201d\u3000-\u303f\uff00-\uffef]+/iy;
const TARGET =
  /\([ \n]{0,99}(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.)*\))*))(?:[ \n]{1,99}(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\((?:[^()\\]|\\.)*\)))?[ \n]{0,99}\)/sy;
const NAMED = /\[([^[\]]{0,200})\]/y;
const ANGLED = /<((?:https?|mailto):[^\s<>]*|[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+)>/iy;
const BREAK = /<br[ \t]*\/?>/iy;
const ENTITY = /&(?:(amp|lt|gt|quot|apos|nbsp|copy|hellip|ndash|mdash|rarr|larr|times)|#(\d{2,7})|#x([\da-f]{2,6}));/iy;
const ENTITIES = {
  amp: "&",
  lt: "<",
  gt: ">",
  quot: '"',
  apos: "'",
  nbsp: "\u00a0",
  copy: "©",
  hellip: "…",
  ndash: "–",
  mdash: "—",
  rarr: "→",
  larr: "←",
  times: "×",
};
const DOLLARS = /\$\$[^$]+\$\$|\$(?![\s$])(?:[^$\\\n]|\\.)*(?<!\s)\$(?![\p{L}\p{N}])/uy;
const SIGN = /[!-/:-@[-`{-~]/;
const UNFINISHED = /!?\[([^[\]]*)\]\((?:https?:)?[^\s()]*$/; // a link that is being written

/**
 * A fragment of the parsed `text`. `refs`: addresses by reference name. `open`: the text is still growing, and unclosed
 * marks are drawn as if they were closed. `cell`: of a table, where `<br>` is the only line break.
 */
export function inline(text, { refs = new Map(), open = false, cell = false } = {}) {
  const given = open ? text.slice(0, -2_000) + text.slice(-2_000).replace(UNFINISHED, "$1") : text;
  return new Inline(given, refs, open, cell).read();
}

/** The name of a reference, as two spellings of it are the same. */
export const nameOf = (label) => label.trim().replace(/\s+/g, " ").toLowerCase();

class Inline {
  #at = 0;
  #found = document.createDocumentFragment();
  #runs = new Runs();
  #brackets = []; // `[` and `![` that may begin a link
  #spent = 0; // so many of them stand before a link, and links do not lie in links
  #missing = new Set(); // closing marks that do not occur any more

  constructor(text, refs, open, cell) {
    Object.assign(this, { text, refs, open, cell });
  }

  read() {
    while (this.#at < this.text.length) {
      const plain = this.#match(PLAIN);
      if (plain) this.#say(plain[0]);
      else (READERS[this.text[this.#at]] ?? READERS.bare)(this);
    }
    const waiting = this.open && this.#pairAll();
    if (waiting && this.#runs.around("strong", waiting, null)) waiting.data = "";
    this.#runs.pair();
    this.#found.normalize();
    return this.#found;
  }

  /** The node of a run that is to be drawn as if it were closed. */
  #pairAll() {
    const node = this.#runs.waiting()?.node;
    this.#runs.pair();
    return node?.data === "**" && node.parentNode === this.#found ? node : null;
  }

  #match(pattern) {
    pattern.lastIndex = this.#at;
    const match = pattern.exec(this.text);
    if (match) this.#at += match[0].length;
    return match;
  }

  #say(text) {
    return this.#put(document.createTextNode(escapeProse(text)));
  }

  #put(node) {
    this.#found.append(node);
    return node;
  }

  /** The text up to and including `end`; null, remembered for the next call, where `end` does not follow. */
  #upTo(end, from) {
    if (this.#missing.has(end)) return null;
    const found = this.text.indexOf(end, from);
    if (found < 0) {
      this.#missing.add(end);
      return null;
    }
    const text = this.text.slice(this.#at, found + end.length);
    this.#at = found + end.length;
    return text;
  }

  static escape(self) {
    const next = self.text[self.#at + 1] ?? "";
    const formula = { "(": "\\)", "[": "\\]" }[next];
    const written = formula && self.#upTo(formula, self.#at + 2);
    if (written) return self.#put(math(written));
    self.#at += 1;
    if (next === "\n") return undefined; // the line break itself comes next
    if (!SIGN.test(next)) return self.#say("\\");
    self.#at += 1;
    return self.#say(next);
  }

  static code(self) {
    const marks = /`+/y;
    marks.lastIndex = self.#at;
    const mark = marks.exec(self.text)[0],
      from = self.#at + mark.length;
    const end = self.#closing(mark, from);
    if (end < 0) {
      const rest = self.text.slice(from);
      self.#at = from;
      if (!self.open || !rest || rest.includes("\n")) return self.#say(mark);
      self.#at = self.text.length;
      return self.#put(code(rest));
    }
    self.#at = end + mark.length;
    return self.#put(code(self.text.slice(from, end)));
  }

  #closing(mark, from) {
    if (this.#missing.has(mark)) return -1;
    for (const { 0: run, index } of this.text.slice(from).matchAll(/`+/g)) if (run === mark) return from + index;
    this.#missing.add(mark);
    return -1;
  }

  static run(self) {
    const mark = self.text[self.#at];
    let end = self.#at;
    while (self.text[end] === mark) end += 1;
    const before = characterBefore(self.text, self.#at),
      after = String.fromCodePoint(self.text.codePointAt(end) ?? 32);
    const count = end - self.#at;
    self.#at = end;
    const node = self.#say(mark.repeat(count));
    if (mark !== "~" || count === 2) self.#runs.push(node, mark, count, before, after);
  }

  static bracket(self, sign = "[") {
    self.#at += sign.length;
    self.#brackets.push({ node: self.#say(sign), from: self.#at, below: self.#runs.last, image: sign === "![" });
  }

  static bang(self) {
    if (self.text[self.#at + 1] === "[") return Inline.bracket(self, "![");
    self.#at += 1;
    return self.#say("!");
  }

  static close(self) {
    const opener = self.#brackets.pop(),
      end = self.#at;
    const usable = opener && (opener.image || self.#brackets.length >= self.#spent);
    self.#spent = Math.min(self.#spent, self.#brackets.length);
    self.#at += 1;
    const written = usable ? self.#target(self.text.slice(opener.from, end)) : null;
    if (written === null) return self.#say("]");
    self.#runs.pair(opener.below);
    const within = document.createDocumentFragment();
    while (opener.node.nextSibling) within.append(opener.node.nextSibling);
    // Links do not lie in links.
    for (const inner of within.querySelectorAll("a")) inner.replaceWith(...inner.childNodes);
    opener.node.remove();
    const url = address(written.url);
    const inside = written.short ? ["[", within, "]"] : [within];
    if (opener.image) return self.#put(imageLink(url, written.url, self.text.slice(opener.from, end)));
    self.#spent = self.#brackets.length;
    return self.#put(url ? link(url, ...inside) : unlinked(written.url, ...inside));
  }

  /** The target of the words in brackets, `{url, short?}`, from the text that follows; null if there is none. */
  #target(words) {
    const given = this.#match(TARGET);
    if (given) return { url: (given[1] ?? given[2]).replace(/\\([!-/:-@[-`{-~])/g, "$1") };
    const start = this.#at,
      named = this.#match(NAMED);
    const url = this.refs.get(nameOf(named?.[1] || words));
    if (url !== undefined) return { url, short: !named };
    this.#at = start;
    return null;
  }

  static angle(self) {
    const written = self.#match(ANGLED);
    if (written) {
      const url = address(/^(https?|mailto):/i.test(written[1]) ? written[1] : `mailto:${written[1]}`);
      return url ? self.#put(link(url, written[1])) : self.#say(written[0]);
    }
    if (self.cell && self.#match(BREAK)) return self.#put(h("br"));
    self.#at += 1;
    return self.#say("<");
  }

  static entity(self) {
    const found = self.#match(ENTITY);
    if (!found) {
      self.#at += 1;
      return self.#say("&");
    }
    const [written, name, decimal, hex] = found;
    if (name) return self.#say(ENTITIES[name] ?? written);
    const point = decimal ? Number(decimal) : parseInt(hex, 16);
    return self.#say(point > 0x10ffff || (point >= 0xd800 && point < 0xe000) ? written : String.fromCodePoint(point));
  }

  static dollar(self) {
    const before = self.text[self.#at - 1] ?? " ";
    const formula = /[\p{L}\p{N}]/u.test(before) ? null : self.#match(DOLLARS);
    if (formula) return self.#put(math(formula[0]));
    self.#at += 1;
    return self.#say("$");
  }

  static newline(self) {
    const last = self.#found.lastChild;
    if (last?.nodeType === Node.TEXT_NODE) last.data = last.data.trimEnd();
    self.#at += 1;
    while (self.text[self.#at] === " " || self.text[self.#at] === "\t") self.#at += 1;
    if (self.#at < self.text.length) self.#put(h("br"));
  }

  static bare(self) {
    const from = self.#at,
      found = /[\p{L}\p{N}_]/u.test(characterBefore(self.text, from)) ? null : self.#match(BARE);
    const written = found && withoutTrailing(found[0]);
    const url = written && address(/^www/i.test(written) ? `https://${written}` : written);
    self.#at = from + (url ? written.length : 1);
    if (url) self.#put(link(url, written));
    else self.#say(self.text[from]);
  }
}

const READERS = {
  "\\": Inline.escape,
  "`": Inline.code,
  "*": Inline.run,
  _: Inline.run,
  "~": Inline.run,
  "[": Inline.bracket,
  "!": Inline.bang,
  "]": Inline.close,
  "<": Inline.angle,
  "&": Inline.entity,
  $: Inline.dollar,
  "\n": Inline.newline,
  bare: Inline.bare,
};

function characterBefore(text, at) {
  if (!at) return " ";
  const low = text.charCodeAt(at - 1);
  return low >= 0xdc00 && low < 0xe000 && at > 1 ? text.slice(at - 2, at) : text[at - 1];
}

/** An address without what ends the sentence around it. */
function withoutTrailing(written) {
  let end = written.length;
  let unopened = written.split(")").length - written.split("(").length;
  for (;;) {
    const last = written[end - 1];
    if (last === ")" && unopened > 0) unopened -= 1;
    else if (!/[.,;:!?'"*_~\]}|]/.test(last ?? "")) return written.slice(0, end);
    end -= 1;
  }
}

function code(written) {
  const words = written.replaceAll("\n", " ");
  const bare = /^ .*[^ ].* $/s.test(words) ? words.slice(1, -1) : words;
  return h("code", { dir: "ltr" }, escapeCode(bare));
}

const math = (written) => h("code", { class: "math", dir: "ltr" }, escapeCode(written));
