/** A file as it can be seen: text with line numbers, Markdown, a table, a notebook, a picture; of others what they are. */

import { button, buttonRow, fill, h, icon } from "../dom/elements.js";
import { t } from "../dom/more_texts.js";
import { formatSize } from "../cards/changed_files.js";
import { PICTURES } from "../cards/message_files.js";
import { markdownElement } from "../markdown/markdown.js";
import { CodeView } from "../text/code.js";
import { fileLanguage } from "../text/file_language.js";
import { readBlob, readPart } from "./requests.js";

const PART = 256 * 1024; // bytes of a text at a time
const MOST_TEXT = 4 * 1024 * 1024;
const NOTEBOOK = 8 * 1024 * 1024;
const PICTURE = 32 * 1024 * 1024;
const PDF = "application/pdf";

/**
 * Fills `place` with the file, at a `line` or `page` of it. `keep(url)` takes addresses of blobs, to be given back when
 * the file is closed.
 */
export async function showPreview(place, path, keep, { line = 0, page = 0 } = {}) {
  const first = await readPart(path, 0, PART);
  if (!first.bytes.length) return fill(place, note(t("workspace.preview.empty")));
  if (PICTURES.has(first.kind)) return fill(place, await picture(path, first, keep));
  if (first.kind === PDF) return fill(place, pdf(path, first, keep, page));
  if (first.kind !== "text/plain") return fill(place, note(t("workspace.preview.binary", { size: sizeOf(first) })));
  return fill(place, await textual(path, first, line));
}

const note = (words) => h("p", { class: "preview-note" }, words);
const sizeOf = ({ size }) => formatSize(size);

async function picture(path, { size, kind }, keep) {
  if (size > PICTURE) return note(t("workspace.preview.large", { size: formatSize(size) }));
  return h("img", { class: "preview-picture", src: keep(await readBlob(path, kind)), alt: path });
}

/**
 * A PDF opens in a tab of its own, with the browser's viewer. In a frame of this page it would inherit the policy of
 * the page, which lets nothing be embedded; a policy that lets PDFs in would let any blob in.
 */
function pdf(path, { size }, keep, page) {
  const open = async () => {
    const address = keep(await readBlob(path, PDF));
    h("a", { href: page ? `${address}#page=${page}` : address, target: "_blank", rel: "noopener" }).click();
  };
  const opens = button([icon("file"), t("workspace.pdf.open")], open, { class: "primary" });
  return h("div", { class: "preview-note" }, h("p", {}, t("workspace.pdf", { size: formatSize(size) })), opens);
}

async function textual(path, first, line) {
  if (line) return sourceView(path, await withLine(path, first, line), line);
  const text = new TextDecoder().decode(first.bytes);
  const whole = first.bytes.length >= first.size;
  const source = () => sourceView(path, first);
  if (/\.(md|markdown)$/i.test(path) && whole) return views(markdownElement(text), source);
  if (/\.(csv|tsv)$/i.test(path)) {
    const { tableView } = await import("./table_view.js");
    const cut = whole ? text : text.slice(0, text.lastIndexOf("\n") + 1);
    const partly = whole ? null : note(t("workspace.table.cut", { size: formatSize(PART) }));
    return views([tableView(cut, path), partly], source);
  }
  if (/\.ipynb$/i.test(path) && first.size <= NOTEBOOK) {
    const [{ notebookView }, all] = await Promise.all([import("./notebook_view.js"), wholeText(path, first)]);
    const book = notebookView(all);
    if (book) return views(book, source);
  }
  return source();
}

/** The first part, longer if the line is not in it. */
async function withLine(path, { bytes, ...first }, line) {
  const ends = (some) => some.reduce((count, byte) => count + (byte === 10), 0);
  for (let lines = ends(bytes); lines < line && bytes.length < Math.min(first.size, MOST_TEXT); ) {
    const more = await readPart(path, bytes.length, PART);
    if (!more.bytes.length) break; // it has become shorter
    lines += ends(more.bytes);
    bytes = new Uint8Array([...bytes, ...more.bytes]);
  }
  return { ...first, bytes };
}

async function wholeText(path, first) {
  if (first.bytes.length >= first.size) return new TextDecoder().decode(first.bytes);
  return (await readBlob(path)).text();
}

/** Two views of one file, and the buttons to change between them. */
function views(rendered, makeSource) {
  const place = h("div", {}, rendered);
  const names = ["workspace.view.rendered", "workspace.view.source"];
  let source = null;
  const show = (at) => {
    fill(place, at ? (source ??= makeSource()) : rendered);
    buttons.forEach((one, number) => one.setAttribute("aria-pressed", String(number === at)));
  };
  const buttons = names.map((name, at) => button(t(name), () => show(at)));
  show(0);
  return [h("div", { class: "view-switch", role: "group", "aria-label": t("workspace.view") }, buttons), place];
}

/** The text with line numbers and colours, one of them marked; of a long one a part at a time. */
function sourceView(path, first, marked = 0) {
  const code = new CodeView(fileLanguage(path), { whole: true });
  const numbers = h("span", { class: "line-numbers", "aria-hidden": "true" });
  code.code.before(numbers);
  code.element.classList.add("numbered");
  const decoder = new TextDecoder();
  const rest = buttonRow();
  let read = 0,
    lines = 0;
  const add = ({ bytes, size }) => {
    read += bytes.length;
    const text = decoder.decode(bytes, { stream: read < size });
    code.add(text);
    if (read < size) code.draw();
    else code.close();
    const count = code.text ? code.text.split("\n").length : 1;
    numbers.append(...numbersFrom(lines + 1, count, marked));
    lines = count;
    fill(rest, read < size ? more(size) : null);
  };
  const more = (size) => {
    if (read >= MOST_TEXT) return note(t("workspace.preview.rest", { size: formatSize(size - read) }));
    const load = button(t("workspace.preview.more", { size: formatSize(size - read) }), async () => {
      load.ariaDisabled = "true";
      add(await readPart(path, read, PART));
    });
    return load;
  };
  add(first);
  return [code.element, rest];
}

function numbersFrom(first, last, marked) {
  if (marked < first || marked > last) {
    return [Array.from({ length: Math.max(0, last - first + 1) }, (_, at) => `${first + at}\n`).join("")];
  }
  const [before] = numbersFrom(first, marked - 1, 0);
  return [before, h("mark", {}, String(marked)), "\n", ...numbersFrom(marked + 1, last, 0)];
}
