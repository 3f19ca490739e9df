/** A Jupyter notebook: its cells and their outputs as text and pictures. Nothing in it is run; HTML stays unseen. */

import { h } from "../dom/elements.js";
import { t } from "../dom/more_texts.js";
import { markdownElement } from "../markdown/markdown.js";
import { codeBlock } from "../text/code.js";
import { parseJSON } from "../text/json.js";

const MOST_CELLS = 300;
const MOST_CHARACTERS = 50_000; // of one output
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const BASE64 = /^[A-Za-z0-9+/=\s]*$/;
// eslint-disable-next-line no-control-regex -- colours of a traceback
const COLOURS = /\u001b\[[0-9;]*m/g;

/** The notebook as an element; null if the text is none. */
export function notebookView(text) {
  let book;
  try {
    book = parseJSON(text);
  } catch {
    return null;
  }
  if (!Array.isArray(book?.cells)) return null;
  const language = String(book.metadata?.language_info?.name ?? "python");
  const cells = book.cells.slice(0, MOST_CELLS).map((cell) => cellView(cell ?? {}, language));
  const more = book.cells.length - cells.length;
  const rest = more > 0 ? h("p", { class: "faint" }, t("workspace.notebook.more", { count: more })) : null;
  return h("div", { class: "notebook" }, cells, rest);
}

const joined = (given) => (Array.isArray(given) ? given.join("") : String(given ?? ""));

function cellView({ cell_type: kind, source, outputs, execution_count: number }, language) {
  const text = joined(source);
  if (kind === "markdown") return h("div", { class: "notebook-cell" }, markdownElement(text));
  const code = codeBlock(text, kind === "code" ? language : "");
  const count = kind === "code" ? h("p", { class: "faint notebook-count" }, `[${number ?? " "}]`) : null;
  const shown = Array.isArray(outputs) ? outputs.map(outputView) : null;
  return h("div", { class: "notebook-cell" }, count, code, shown);
}

function outputView(output) {
  const { output_type: kind, text, data, traceback } = output ?? {};
  if (kind === "stream") return printed(joined(text));
  if (kind === "error") return printed((Array.isArray(traceback) ? traceback : []).join("\n"));
  const picture = PICTURES.find((type) => BASE64.test(joined(data?.[type])) && data?.[type]);
  if (picture) {
    const source = `data:${picture};base64,${joined(data[picture]).replace(/\s/g, "")}`;
    return h("img", { class: "notebook-picture", src: source, alt: t("workspace.notebook.picture") });
  }
  if (data?.["text/plain"] !== undefined) return printed(joined(data["text/plain"]));
  return h("p", { class: "faint" }, t("workspace.notebook.unseen"));
}

function printed(text) {
  const plain = text.replace(COLOURS, "");
  const rest = plain.length > MOST_CHARACTERS ? `\n${t("workspace.notebook.cut")}` : "";
  return codeBlock(plain.slice(0, MOST_CHARACTERS) + rest);
}
