/** Draws lines of spans `{text, style}`. */

import { classesOf } from "./ansi_colours.js";
import { PLAIN } from "./ansi_style.js";
import { h } from "../dom/elements.js";

/** Lines as nodes: neighbours that look the same become one text. */
export function renderLines(lines, end = "\n") {
  const nodes = document.createDocumentFragment();
  let style = null;
  let text = "";
  const flush = () => {
    const names = text && style ? classesOf(style) : "";
    if (text) nodes.append(names ? h("span", { class: names }, text) : text);
    text = "";
  };
  for (const spans of lines) {
    for (const span of spans) {
      if (style !== span.style) flush();
      style = span.style;
      text += span.text;
    }
    if (end && style !== PLAIN) {
      flush();
      style = null;
    }
    text += end;
  }
  flush();
  return nodes;
}
