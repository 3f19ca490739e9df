/** Parses the inline content of a paragraph: code, emphasis, links, tags and line breaks, as DOM nodes. */

import { h } from "../dom/elements.js";
import { Runs } from "./emphasis.js";
import { characterOf, ENTITY } from "./entities.js";
import { INLINE } from "./extensions.js";
import { MARK } from "./footnotes.js";
import { labelAt, nameOf, targetAt } from "./link_targets.js";
import { address, imageLink, link, titled, unlinked } from "./links.js";
import { ADDRESS, BREAK, EMAIL, HTML, TAG, TAG_BEGUN } from "./tags.js";
import { escapeCode, escapeProse } from "../text/escape_invisible.js";

const PLAIN = /(?:(?!https?:\/\/|www\.)[^\\`*_~[\]!<&$\n])+/iy;
const BARE = /(?:https?:\/\/|www\.)[^\s<>[\]`"\u201c\u201d\u3000-\u303f\uff00-\uffef]+/iy;
const SIGN = /[!-/:-@[-`{-~]/;
const UNFINISHED = /!?\[([^[\]]*)\]\((?:https?:)?[^\s()]*$/; // a link that is being written
const MOST_TAGS = 16; // in each other

/**
 * A fragment of the parsed `text`. `refs`: addresses by reference name, and marks of footnotes. `open`: the text is
 * still growing, and unclosed marks are drawn as if they were closed.
 */
export function inline(text, { refs = new Map(), open = false } = {}) {
  const given = open
    ? text.slice(0, -2_000) + text.slice(-2_000).replace(UNFINISHED, "$1").replace(TAG_BEGUN, "")
    : text;
  return new Inline(given, refs, open).read();
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
    const waiting = this.open && this.#pairAll();
    if (waiting && this.#runs.around("strong", waiting, null)) waiting.data = "";
    this.#runs.pair();
    this.#trim();
    this.#found.normalize();
    return this.#found;
  }

  /** The node of a run that is to be drawn as if it were closed. */
  #pairAll() {
    for (const tag of this.#tags.reverse()) this.#wrap(tag);
    const node = this.#runs.waiting()?.node;
    this.#runs.pair();
    return node?.data === "**" && node.parentNode === this.#found ? node : null;
  }

  #extended() {
    for (const read of INLINE[this.text[this.#at]] ?? []) {
      const found = read(this.text, this.#at);
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
    const blanks = /[ \t]*$/.exec(last.data)[0];
    if (blanks) last.data = last.data.slice(0, -blanks.length);
    return blanks.endsWith("  ");
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
  return h("code", { dir: "ltr" }, escapeCode(bare));
}
