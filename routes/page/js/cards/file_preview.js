/** A file of the workspace in a dialog: its text, its picture, and a button that saves it. Fetched with the token. */

import { request } from "../feed/api.js";
import { button, dialog, fill, h } from "../dom/elements.js";
import { problemLine } from "../dom/forms.js";
import { t } from "../dom/more_texts.js";
import { codeBlock } from "../text/code.js";
import { escapeLine } from "../text/exact_text.js";
import { fileLanguage } from "../text/file_language.js";
import { hasOwnFolder, openInWorkspace, PICTURES } from "./message_files.js";

const TEXT_BYTES = 256 * 1024; // of a text that are shown

/** Shows the file of an event `file.changed` as it is now. */
export function openFile({ path, kind }, session) {
  const address = `/sessions/${encodeURIComponent(session)}/workspace/${path.split("/").map(encodeURIComponent).join("/")}`;
  const view = h("div", { class: "file-preview", "aria-live": "polite" }, t("files.loading"));
  const urls = [];
  const addressOf = (blob) => {
    urls.push(URL.createObjectURL(blob));
    return urls.at(-1);
  };
  const whole = async () => (await request("GET", address)).blob();
  const save = guardedBy(view, async () => {
    h("a", { href: addressOf(await whole()), download: path.split("/").at(-1) }).click();
  });
  guardedBy(view, async () => fill(view, await preview(address, path, kind, whole, addressOf)))();
  const closed = dialog(escapeLine(path), (close) => [
    view,
    button(t("files.save"), save),
    ...(hasOwnFolder(session) ? [] : [button(t("files.open"), () => openInWorkspace(path, close))]),
    button(t("files.close"), () => close()),
  ]);
  return closed.then(() => setTimeout(() => urls.forEach((url) => URL.revokeObjectURL(url)), 10_000));
}

async function preview(address, path, kind, whole, addressOf) {
  if (PICTURES.has(kind)) return h("img", { class: "large-picture", src: addressOf(await whole()), alt: path });
  const response = await request("GET", address, { headers: { range: `bytes=0-${TEXT_BYTES - 1}` } }).catch((error) => {
    if (error.status === 416) return null; // nothing is in it
    throw error;
  });
  if (!response) return h("p", { class: "faint" }, t("files.empty"));
  if (!response.headers.get("content-type").startsWith("text/plain")) {
    return h("p", { class: "faint" }, t("files.none"));
  }
  const size = Number(/\/(\d+)$/.exec(response.headers.get("content-range") ?? "")?.[1] ?? 0);
  const rest = size > TEXT_BYTES && h("p", { class: "faint" }, t("files.beginning"));
  return [codeBlock(await response.text(), fileLanguage(path)), rest];
}

/** The function, with its error shown in the dialog. */
function guardedBy(view, does) {
  return async () => {
    try {
      await does();
    } catch (error) {
      fill(view, problemLine(error));
    }
  };
}
