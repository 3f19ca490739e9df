/** Files to attach to a message: picked, dropped or pasted; shown as thumbnails until they are sent. */

import { request } from "../feed/api.js";
import { PICTURES } from "../cards/message_files.js";
import { announce, button, fill, h, iconButton } from "../dom/elements.js";
import { Problem } from "../dom/forms.js";
import { t } from "../dom/texts.js";

const PDF = "application/pdf";
const SHOWN_BYTES = 32 * 1024; // of a text that is also part of the message: the model need not open it

export class Attachments {
  #files = []; // of `readFile`
  #reading = 0;

  /** `onChange()` after something was added or removed. */
  constructor(onChange) {
    this.onChange = onChange;
    this.list = h("ul", { class: "attached", "aria-label": t("attachments.attached"), hidden: true });
    this.problem = new Problem();
    this.element = h("div", { class: "attachments" }, this.list, this.problem.element);
  }

  get empty() {
    return !this.#files.length;
  }

  /** Whether a file is still being read or scaled down. */
  get busy() {
    return this.#reading > 0;
  }

  /** Adds the files that can be sent; shows why others cannot. */
  async add(files) {
    this.problem.show("");
    this.#reading++;
    const refused = [];
    for (const file of files) {
      try {
        this.#append(await readFile(file));
      } catch (error) {
        refused.push(`${file.name || t("attachments.file")}: ${error.message}`);
      }
    }
    this.#reading--;
    this.problem.show(refused.join(" "));
    this.onChange();
  }

  /** The long texts that were pasted. */
  get pasted() {
    return this.#files.filter((file) => file.pasted).map((file) => file.pasted);
  }

  /** Adds a long text that was pasted; `intoMessage(text)` puts it into the message box instead. */
  async addPasted(text, { isWanted, intoMessage }) {
    this.#reading++;
    try {
      const [{ pastedFile }, data] = await Promise.all([import("./pasted.js"), base64(new Blob([text]))]);
      const file = pastedFile(text, data, () => {
        this.#drop(file);
        intoMessage(text);
      });
      if (isWanted()) this.#append(file);
    } catch {
      intoMessage(text);
    }
    this.#reading--;
    this.onChange();
  }

  /** Removes the texts that were pasted into another draft. */
  dropPasted() {
    this.#files = this.#files.filter((file) => !file.pasted);
    this.#draw();
  }

  /** Removes and returns all attachments; `restore` adds them again. */
  take() {
    const files = this.#files;
    this.#files = [];
    this.#draw();
    return files;
  }

  restore(files) {
    this.#files = [...files, ...this.#files];
    this.#draw();
  }

  /** Releases the thumbnails of files that were sent. */
  forget(files) {
    for (const { url } of files) if (url) URL.revokeObjectURL(url);
  }

  #append(file) {
    this.#files.push(file);
    this.#draw();
    announce(t("attachments.added", { name: file.label ?? file.name }));
  }

  #draw() {
    this.list.hidden = this.empty;
    const rows = this.#files.map((file) => this.#row(file));
    fill(this.list, rows);
    this.onChange();
  }

  #drop(file) {
    this.#files = this.#files.filter((one) => one !== file);
    if (file.url) URL.revokeObjectURL(file.url);
    this.#draw();
    document.getElementById("composer-text").focus();
  }

  #row(file) {
    const { label = file.name, open, url } = file;
    const away = iconButton(t("attachments.remove", { name: label }), "cross", () => this.#drop(file), { title: null });
    const look = url ? h("img", { src: url, alt: "" }) : h("span", { class: "attached-kind" }, file.kind);
    const props = { class: open ? "attached-name quiet" : "attached-name", dir: "auto", title: label };
    return h("li", {}, look, open ? button(label, open, props) : h("span", props, label), away);
  }
}

/** A file as it is sent: `{name, kind, url?, part, text? (a short one)}`. Raises an Error with the reason. */
async function readFile(file) {
  const name = file.name || "pasted";
  if (PICTURES.has(file.type)) {
    const picture = await scaledDown(file);
    const kind = file.type.slice(6).toUpperCase();
    const part = { type: "image", data: await base64(picture), name };
    return { name, kind, url: URL.createObjectURL(picture), part };
  }
  const part = { type: "file", data: await base64(file), name };
  if (file.type === PDF || name.toLowerCase().endsWith(".pdf")) return { name, kind: "PDF", part };
  const text = file.size <= SHOWN_BYTES ? await textOf(file) : undefined;
  return { name, kind: t(text === undefined ? "attachments.kind.file" : "attachments.kind.text"), part, text };
}

/** Its text; undefined if it is none. */
async function textOf(file) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return text.includes("\0") ? undefined : text;
  } catch {
    return undefined;
  }
}

function base64(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Error(t("attachments.unreadable")));
    reader.readAsDataURL(blob);
  });
}

/** The `message` of POST /chat: a string, or parts if there are files. */
export function messageOf(text, files) {
  const words = wordsOf(text, files);
  const parts = files.map(({ part }) => part);
  if (!parts.length) return words;
  return [...(words ? [{ type: "text", text: words }] : []), ...parts];
}

/** The text of the user, followed by the short text files, each in a fence with its name: without halves of characters. */
export function wordsOf(text, files) {
  const texts = files.filter((file) => file.text !== undefined);
  return [text, ...texts.map((file) => `${file.name}:\n${fenced(file.text, languageOf(file.name))}`)]
    .filter(Boolean)
    .join("\n\n")
    .toWellFormed();
}

/** A fence that is longer than any in the text. */
export function fenced(text, language = "") {
  const longest = (text.match(/`+/g) ?? []).reduce((most, ticks) => Math.max(most, ticks.length), 2);
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${text}${text.endsWith("\n") ? "" : "\n"}${fence}`;
}

const languageOf = (name) => /\.(\w{1,8})$/.exec(name)?.[1] ?? "";

/** The files of an earlier message, to be sent again. Raises Refused. */
export function fetchAttachments({ attachments = [] }, session) {
  return Promise.all(
    attachments.map(async ({ sha256, name, media_type }) => {
      const response = await request("GET", `/sessions/${encodeURIComponent(session)}/files/${sha256}`);
      const type = PICTURES.has(media_type) ? "image" : "file";
      return { name, part: { type, data: await base64(await response.blob()), name: name ?? "" } };
    }),
  );
}

const MOST_BYTES = 4 * 1024 * 1024;
const LONGEST = 2048; // pixels of the longer side
const QUALITY = 0.88;

/** The picture, scaled down if it is too large. Raises an Error if it cannot be decoded. */
export async function scaledDown(file) {
  if (file.size <= MOST_BYTES) return file;
  const bitmap = await createImageBitmap(file).catch(() => null);
  if (!bitmap) throw new Error(t("attachments.undecodable"));
  const scale = Math.min(1, LONGEST / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  const kinds = file.type === "image/png" ? ["image/png", "image/webp", "image/jpeg"] : ["image/webp", "image/jpeg"];
  for (const kind of kinds) {
    const made = await new Promise((resolve) => canvas.toBlob(resolve, kind, QUALITY));
    if (made && made.size <= MOST_BYTES) return made;
  }
  throw new Error(t("attachments.too_large"));
}

const hasFiles = (event) => event.dataTransfer?.types.includes("Files");

/** Calls `take(files)` for files dropped anywhere on the page; an overlay shows while files are dragged. */
export function dropZone(take) {
  const veil = h("div", { class: "drop-overlay", hidden: true }, h("p", {}, t("attachments.drop")));
  document.body.append(veil);
  let inside = 0; // dragenter and dragleave fire for each element that is crossed
  const on = (name, does) =>
    addEventListener(name, (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      does(event);
      veil.hidden = inside <= 0;
    });
  on("dragenter", () => inside++);
  on("dragleave", () => inside--);
  on("dragover", (event) => (event.dataTransfer.dropEffect = "copy"));
  on("drop", (event) => {
    inside = 0;
    take([...event.dataTransfer.files]);
  });
}
