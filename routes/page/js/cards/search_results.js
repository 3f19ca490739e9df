/** The results of a web search as links. */

import { h } from "../dom/elements.js";
import { address, link } from "../markdown/links.js";
import { escapeLine } from "../text/exact_text.js";
import { t } from "../dom/texts.js";

const MOST = 20; // results; more are not of this tool
const RESULT = /^\d+\. (?<title>[^\n]+)\n(?<url>[^\n]+)(?:\n(?<snippet>[^\n]+))?$/;
const NOTHING = /^Nothing was found\b/;

/** `[{title, url, snippet}]` of the text of `web_search`; null if it is something else. */
export function searchResults(text) {
  if (NOTHING.test(text)) return [];
  const blocks = text.split("\n\n", MOST + 1);
  if (blocks.length > MOST) return null;
  const found = blocks.map((block) => {
    const { title, url, snippet = "" } = RESULT.exec(block)?.groups ?? {};
    const target = url && address(url);
    return target && target.protocol !== "mailto:" ? { title, url: target, snippet } : null;
  });
  return found.every(Boolean) ? found : null;
}

/** "3 results" */
export function countOf(results) {
  return results.length ? t("card.results", { count: results.length }) : t("card.results.none");
}

export function resultList(results) {
  const rows = results.map(({ title, url, snippet }) => {
    const shown = h("bdi", { class: "search-url" }, escapeLine(url.href));
    return h("li", {}, link(url, title), shown, snippet ? h("p", { dir: "auto" }, escapeLine(snippet)) : null);
  });
  return h("ol", { class: "search-results" }, rows);
}
