/** Parses the inline content of a paragraph: code, emphasis, links, tags and line breaks, as DOM nodes. */

import { h } from "../dom/elements.js";
import { cited } from "../text/found_passages.js";
import { Runs } from "./emphasis.js";
import { characterOf, ENTITY } from "./entities.js";
import { INLINE } from "./extensions.js";
import { labelAt, nameOf, targetAt } from "./link_targets.js";
import { address, imageLink, link, titled, unlinked } from "./links.js";
import { escapeCode, escapeProse } from "../text/escape_invisible.js";

const PLAIN = /(?:(?!https?:\/\/|www\.)[^\\`*_~[\]!<&$\n])+/iy;
const BARE = /(?:https?:\/\/|www\.)[^\s<>[\]`"\u201c\u201d\u3000-\u303f\uff00-\uffef]+/iy;
const SIGN = /[!-/:-@[-`{-~]/;
// A few tags without attributes mean what they say; each other tag is text as a whole.
const BREAK = /<br[ \t]*\/?>/iy;
const TAG = /<(\/?)(b|i|em|strong|u|s|del|ins|mark|kbd|sub|sup|small)>/iy;

// Each part has a longest: text made of beginnings costs little.
const ATTRIBUTE =
  "\\s{1,99}[a-z_:][\\w.:-]{0,99}(?:\\s{0,99}=\\s{0,99}(?:[^\\s\"'=<>`]{1,999}|'[^']{0,999}'|\"[^\"]{0,999}\"))?";
const HTML = new RegExp(
  `<(?:/[a-z][a-z\\d-]*\\s*|[a-z][a-z\\d-]*(?:${ATTRIBUTE}){0,50}\\s{0,99}/?` +
    "|!--(?:-?(?=>)|.{0,999}?--)|\\?.{0,999}?\\?|![a-z][^>]{0,999}|!\\[CDATA\\[.{0,999}?\\]\\])>",
  "isy",
);
const ADDRESS = /<([a-z][a-z\d+.-]{1,31}:[^\s<>]*)>/iy;
const EMAIL = /<([\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+)>/iy;
const MARK = /\[\^([^\s[\]^]{1,80})\](?!\()/y;
const EMPHASES = { "*": ["em"], _: ["em"], "**": ["strong"], __: ["strong"], "***": ["strong", "em"], "~~": ["s"] };
const MOST_TAGS = 16; // in each other

// The end of a text that is being written is not shown while it may become something else: little is taken back.
const READ = 1_000;
const OPEN = [
  [/(?<![\w\])])!?\[(?!\^)((?:[^[\]]|\[[^[\]]*\])*)(?:\](?:\((?:[^()\n]|\([^()\n]*(?:\)|$))*|\[[^[\]]*)?)?$/, "$1"], // a link
  [/\[\^[^\s[\]]*$/, ""], // the mark of a footnote
  [/<((?:https?|mailto):[^\s<>]*)$/i, "$1"],
  [/<\/?[a-z]{0,8}$/i, ""],
  [/&#?\w{0,8}$/, ""],
  [/(?:[*_~`]{1,3}|\\)$/, ""],
];
const TABLE = /(?:^|\n)[ \t]*\|[^\n]*(?:\n[ \t]*\|?[ \t:|-]*)?$/; // the first line of a table, or of its dashes

function decided(text) {
  let end = text.slice(-READ);
  for (const [pattern, shown] of OPEN) end = end.replace(pattern, shown);
  return text.slice(0, -READ) + end.replace(TABLE, "");
}

/**
 * A fragment of the parsed `text`. `refs`: addresses by reference name, and marks of footnotes. `open`: the text is
 * still growing; marks without an end are drawn as if they had one, and what may become something else is left out.
 */
export function inline(text, { refs = new Map(), open = false } = {}) {
  return new Inline(open ? decided(text) : text, refs, open).read();
}

class Inline {
  #at = 0;
  #found = document.createDocumentFragment();
  #runs = new Runs();
  #brackets = []; // `[` and `![` that may begin a link
  #tags = []; // tags that wait for their end
  #spent = 0; // so many of them stand before a link, and links do not lie in links
  #missing = new Set(); // closing marks that do not occur any more

  constructor(text, refs, open) {
    Object.assign(this, { text, refs, open });
  }

  read() {
    while (this.#at < this.text.length) {
      const plain = this.#match(PLAIN);
      if (plain) this.#say(plain[0]);
      else if (!this.#extended()) (READERS[this.text[this.#at]] ?? READERS.bare)(this);
    }
    if (this.open) this.#closeAll();
    this.#runs.pair();
    this.#trim();
    this.#found.normalize();
    return this.#found;
  }

  /** Draws tags and runs that wait for their end as if it were here. */
  #closeAll() {
    for (const tag of this.#tags.reverse()) this.#wrap(tag);
    const waiting = this.#runs.waiting();
    this.#runs.pair();
    for (const node of waiting) {
      if (node.parentNode !== this.#found || !node.nextSibling || !EMPHASES[node.data]) continue;
      for (const tag of EMPHASES[node.data]) this.#runs.around(tag, node, null);
      node.data = "";
    }
  }

  #extended() {
    for (const read of INLINE[this.text[this.#at]] ?? []) {
      const found = read(this.text, this.#at, this.open);
      if (!found) continue;
      this.#at = found.end;
      this.#put(found.node);
      return true;
    }
    return false;
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

  /** Blanks at the end of a line are none; says whether they were two or more. */
  #trim() {
    const last = this.#found.lastChild;
    if (last?.nodeType !== Node.TEXT_NODE) return false;
    const { data } = last;
    let end = data.length;
    while (data[end - 1] === " " || data[end - 1] === "\t") end -= 1;
    if (end < data.length) last.data = data.slice(0, end);
    return data.slice(end).endsWith("  ");
  }

  static escape(self) {
    const next = self.text[self.#at + 1] ?? "";
    self.#at += 1;
    if (next === "\n") return self.#newline(true);
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
    const runs = /`+/g;
    runs.lastIndex = from;
    for (let found = runs.exec(this.text); found; found = runs.exec(this.text))
      if (found[0] === mark) return found.index;
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
    const mark = sign === "[" && self.refs.mark ? self.#footnote() : null;
    if (mark) return self.#put(mark);
    self.#at += sign.length;
    const opener = { node: self.#say(sign), from: self.#at, below: self.#runs.last, image: sign === "![" };
    return self.#brackets.push({ ...opener, tags: self.#tags.length });
  }

  #footnote() {
    const from = this.#at,
      found = this.#match(MARK);
    const mark = found && this.refs.mark(found[1]);
    if (!mark) this.#at = from;
    return mark;
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
    if (!written) return self.#say("]");
    self.#tags.length = opener.tags;
    const within = self.#taken(opener);
    // Links do not lie in links.
    for (const inner of within.querySelectorAll("a")) {
      const picture = inner.matches(".picture") && h("span", { class: "picture" }, ...inner.childNodes);
      inner.replaceWith(...(picture ? [picture] : inner.childNodes));
    }
    const { url: place, title } = written,
      url = address(place);
    if (opener.image) return self.#put(titled(imageLink(url, place, within), title, url));
    self.#spent = self.#brackets.length;
    return self.#put(titled(url ? link(url, within) : unlinked(place, within), title, url));
  }

  /** Everything behind a bracket or a tag, which itself goes. */
  #taken({ node, below }) {
    this.#runs.pair(below);
    const within = document.createDocumentFragment();
    while (node.nextSibling) within.append(node.nextSibling);
    node.remove();
    return within;
  }

  /** The target of the words in brackets, `{url, title}`, from the text that follows; null if there is none. */
  #target(words) {
    const given = targetAt(this.text, this.#at);
    const named = given ? null : labelAt(this.text, this.#at);
    const found = given ?? this.refs.get(nameOf(named?.label || plainLabel(words)));
    this.#at = (found && (given?.end ?? named?.end)) || this.#at;
    return found;
  }

  static angle(self) {
    const tag = self.#match(TAG);
    if (tag) return self.#tag(tag);
    if (self.#match(BREAK)) return self.#put(h("br"));
    const email = self.#match(EMAIL),
      written = email ?? self.#match(ADDRESS);
    const url = written && address(email ? `mailto:${written[1]}` : written[1]);
    if (url) return self.#put(link(url, written[1]));
    if (written) return self.#say(written[0]);
    const html = self.#match(HTML);
    if (html) return self.#say(html[0]);
    self.#at += 1;
    return self.#say("<");
  }

  #tag([written, ends, given]) {
    const name = given.toLowerCase(),
      node = this.#say(written);
    if (!ends) {
      if (this.#tags.length < MOST_TAGS)
        this.#tags.push({ name, node, below: this.#runs.last, from: this.#brackets.length });
      return;
    }
    const place = this.#tags.findLastIndex((tag) => tag.name === name);
    const within = this.#brackets.at(-1)?.tags ?? 0; // tags do not reach out of brackets
    if (place < 0 || place < within) return;
    node.remove();
    this.#wrap(this.#tags[place]);
    this.#tags.length = place;
  }

  #wrap(tag) {
    this.#brackets.length = Math.min(this.#brackets.length, tag.from);
    this.#put(h(tag.name, {}, this.#taken(tag)));
  }

  static entity(self) {
    const found = self.#match(ENTITY);
    if (found) return self.#say(characterOf(found));
    self.#at += 1;
    return self.#say("&");
  }

  static newline(self) {
    self.#newline(false);
  }

  #newline(escaped) {
    const hard = this.#trim() || escaped;
    this.#at += 1;
    while (this.text[this.#at] === " " || this.text[this.#at] === "\t") this.#at += 1;
    if (this.#at >= this.text.length) return;
    if (hard) this.#put(h("br"));
    else if (this.#found.lastChild?.localName !== "br") this.#say("\n");
  }

  static bare(self) {
    const from = self.#at,
      found = /[\p{L}\p{N}_]/u.test(characterBefore(self.text, from)) ? null : self.#match(BARE);
    const written = found && withoutTrailing(found[0]);
    const url = written && address(/^www/i.test(written) ? `https://${written}` : written);
    self.#at = from + (url ? written.length : 1);
    const grows = self.open && from + written?.length === self.text.length;
    if (url) self.#put(grows ? document.createTextNode(escapeProse(written)) : link(url, written));
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
  "\n": Inline.newline,
  bare: Inline.bare,
};

/** Words that name a reference: brackets in them are none of their own. */
const plainLabel = (words) => (words.length < 1_000 && /^(?:[^\\[\]]|\\.)*$/s.test(words) ? words : "");

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
  return cited(h("code", { dir: "ltr" }, escapeCode(bare)), bare);
}
