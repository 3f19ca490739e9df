/** The attachments of a message: pictures as thumbnails, others by name. Fetched with the token, never by a URL. */

import { request } from "../feed/api.js";
import { saveBlob } from "../dom/download.js";
import { button, dialog, h, icon, iconButton } from "../dom/elements.js";
import { t } from "../dom/texts.js";
import { escapeCode } from "../text/escape_invisible.js";

const PRELOAD_MARGIN = "300px"; // distance at which pictures are fetched

/** An element for `{sha256, media_type, size, name, width?, height?, pages?, about?}` of a session's message. */
export function fileElement(file, session) {
  const name = escapeCode(file.name || t(isPicture(file) ? "files.picture.unnamed" : "files.document.unnamed"));
  const shown = isPicture(file) ? thumbnail(file, session, name) : chip(file, session, name);
  const isInWorkspace = file.path && !hasOwnFolder(session);
  return isInWorkspace ? h("span", { class: "message-file" }, shown, workspaceButton(file.path)) : shown;
}

/** Files of a message lie in the workspace, too. */
const workspaceButton = (path) => iconButton(t("files.open"), "folder", () => showInWorkspace(path));

const showInWorkspace = (path) => document.dispatchEvent(new CustomEvent("open-in-workspace", { detail: { path } }));

/** Whether a branch has its own folder, whose files the workspace panel does not show. */
export const hasOwnFolder = (session) => Boolean(session?.startsWith("ses_own"));

/** Shows the file in the workspace panel instead of a dialog; the panel takes the focus when the dialog is gone. */
export function openInWorkspace(path, close) {
  close();
  setTimeout(() => showInWorkspace(path));
}

export const PICTURES = new Set(["image/png", "image/jpeg", "image/webp", "image/gif"]); // that browsers show
const isPicture = ({ media_type: kind }) => PICTURES.has(kind);

async function fetchFile({ sha256 }, session) {
  const path = `/sessions/${encodeURIComponent(session)}/files/${encodeURIComponent(sha256)}`;
  return (await request("GET", path)).blob();
}

function thumbnail(file, session, name) {
  const size = file.width && file.height ? { width: file.width, height: file.height } : {};
  const image = h("img", { class: "user-picture", alt: name, ...size });
  const draw = async () => {
    try {
      image.src = URL.createObjectURL(await fetchFile(file, session));
    } catch (error) {
      shown.replaceWith(h("span", { class: "file-chip", title: error.message }, icon("warn"), h("bdi", {}, name)));
    }
  };
  let drawn = null;
  const drawOnce = () => (drawn ??= draw());
  const open = async () => {
    await drawOnce(); // a click may come before the picture: by then there may be another dialog, or no button
    if (shown.isConnected && !document.querySelector("dialog[open]")) openPicture(image.src, name);
  };
  const props = { class: "picture-button", title: name, "aria-label": t("files.picture", { name }) };
  const shown = button(image, open, props);
  new IntersectionObserver(
    ([seen], observer) => {
      if (!seen.isIntersecting) return;
      observer.disconnect();
      drawOnce();
    },
    { rootMargin: PRELOAD_MARGIN },
  ).observe(shown);
  return shown;
}

function openPicture(source, name) {
  return dialog(name, (close) => [
    h("img", { class: "large-picture", src: source, alt: name }),
    button(t("files.close"), () => close()),
  ]);
}

function chip(file, session, name) {
  const pages = file.pages ? t("files.pages", { count: file.pages }) : file.about;
  const words = [icon("file"), h("bdi", {}, name), pages && h("span", { class: "faint" }, pages)];
  const save = async () => {
    try {
      saveBlob(await fetchFile(file, session), file.name ? name : "document.pdf");
    } catch (error) {
      saves.title = error.message;
      saves.append(h("span", { class: "faint" }, error.message));
    }
  };
  const saves = button(words, save, { class: "file-chip", title: t("files.save.named", { name }) });
  return saves;
}
