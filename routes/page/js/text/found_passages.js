/** Places in files: the results of `search_files`, and what an answer cites. They open the file there. */

import { button, h, icon } from "../dom/elements.js";
import { t } from "../dom/texts.js";
import { escapeLine, escapeText } from "./exact_text.js";

const MOST = 20; // results
const PLACE =
  /^(?<path>[^\n]{1,1000}?)(?::(?<line>\d{1,7})(?:-\d{1,7})?| page (?<page>\d{1,6})| (?:sheet|slide|chapter|part) [^\n]+)$/;
const CITED = /^(?<path>[^\s:`][^:`\n]{0,300}\.\w{1,8}):(?<line>\d{1,7})(?:-\d{1,7})?$/;

/** `[{place, text, path?, line?, page?}]` of the text of `search_files`: lines of passages are indented. */
export function foundPassages(text) {
  const found = [];
  for (const line of text.split("\n")) {
    if (line.startsWith("  ")) found.at(-1)?.lines.push(line.slice(2));
    else if (line && !line.startsWith("[") && found.length < MOST) {
      const { path, line: at, page } = PLACE.exec(line)?.groups ?? {};
      const isFile = path && !path.startsWith("document doc_");
      found.push({ place: line, lines: [], ...(isFile && { path, line: Number(at ?? 0), page: Number(page ?? 0) }) });
    }
  }
  return found.map(({ lines, ...rest }) => ({ ...rest, text: lines.join("\n").trim() }));
}

export function passageList(found) {
  const rows = found.map(({ place, text, ...at }) => {
    const name = [icon("file"), h("bdi", {}, escapeLine(place))];
    const head = at.path ? opening(name, at, "file-chip") : h("span", { class: "file-chip" }, name);
    return h("li", {}, head, h("p", { class: "found-text", dir: "auto" }, escapeText(text)));
  });
  return h("ol", { class: "search-results" }, rows);
}

/** A button around inline code that names a line of a file; else the code. */
export function cited(element, written) {
  const { path, line } = CITED.exec(written)?.groups ?? {};
  return path ? opening(element, { path, line: Number(line) }, "code-link") : element;
}

function opening(label, { path, line, page }, kind) {
  const open = () => document.dispatchEvent(new CustomEvent("open-in-workspace", { detail: { path, line, page } }));
  return button(label, open, { class: kind, title: t("files.show", { path: escapeLine(path) }) });
}
