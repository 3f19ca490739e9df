/** Links in model output: only http, https and mailto; the host is shown if the link text names another one. */

import { h } from "../dom/elements.js";
import { t } from "../dom/texts.js";
import { escapeCode } from "../text/escape_invisible.js";

const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const MOST = 4_000; // characters of an address
const CLAIM = /(?:[\p{L}\p{N}_-]+[.．。])+\p{L}{2,}/gu;
const READ = 400; // characters of a link's text that are searched for host names

/** The URL, if it is whole and of a kind that may be followed; otherwise null. */
export function address(text) {
  const given = text.replaceAll("\\", "%5C"); // a browser would make slashes of them
  if (given.length > MOST || !URL.canParse(given)) return null;
  const url = new URL(given);
  return SCHEMES.has(url.protocol) ? url : null;
}

/** A link around `nodes`; where its words name another host than it leads to, the host stands behind them. */
export function link(url, ...nodes) {
  const anchor = h("a", { href: url.href, target: "_blank", rel: "noopener noreferrer", dir: "auto" }, nodes);
  spellOut(anchor);
  const words = anchor.textContent.trim(),
    place = targetOf(url);
  if (!words) anchor.append(h("bdi", {}, place));
  else if (misleads(words, url, place)) anchor.append(" ", hostOf(place));
  return anchor;
}

const hostOf = (place) => h("bdi", { class: "link-host" }, `(${place})`);

/** A link with its title, unless that names another host. */
export function titled(element, title, url) {
  if (title && !(url && misleads(title, url, targetOf(url)))) element.title = escapeCode(title);
  return element;
}

/** A picture is not fetched from elsewhere: its address could carry what the model has read. */
export function imageLink(url, written, within) {
  for (const host of within.querySelectorAll(".link-host")) host.remove();
  const words = within.textContent.trim();
  const said = words ? t("markdown.image", { words: escapeCode(words) }) : t("markdown.image_undescribed");
  const picture = url ? link(url, said) : h("span", {}, said);
  picture.className = url ? "picture" : "picture not-link";
  const place = url ? targetOf(url) : escapeCode(written.slice(0, 60));
  if (!picture.querySelector(".link-host")) picture.append(" ", hostOf(place));
  return picture;
}

/** What was meant as a link and may not be one: its words, and where it should have led. */
export function unlinked(written, ...nodes) {
  const shown = written.length > 200 ? `${written.slice(0, 200)}…` : written;
  return h("span", { class: "not-link" }, nodes, " ", hostOf(escapeCode(shown)));
}

const targetOf = (url) => (url.protocol === "mailto:" ? escapeCode(decoded(url.pathname)).slice(0, 200) : url.host);

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function misleads(words, url, place) {
  if (url.username || url.password || /(^|\.)xn--/.test(url.host)) return true;
  if (url.protocol === "mailto:") return words.includes("@") && words.replace(/^mailto:/i, "") !== place;
  const claims = words.slice(0, READ).toLowerCase().match(CLAIM) ?? [];
  const bare = (host) => host.replace(/^www\./, "").replace(/:\d+$/, "");
  const told = words.includes("://") ? claims.slice(0, 1) : claims;
  return told.some((claim) => bare(claim) !== bare(url.host));
}

function spellOut(element) {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) walker.currentNode.data = escapeCode(walker.currentNode.data);
}
