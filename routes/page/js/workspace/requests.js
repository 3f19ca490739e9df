/** Requests about the workspace, and what a path is called. */

import { get, post, remove, request } from "../feed/api.js";

const UPLOAD_MS = 3_600_000; // of a large file over a slow line

const query = (values) => new URLSearchParams(values).toString();
const encoded = (path) => path.split("/").map(encodeURIComponent).join("/");

/** The address of a file. */
export const fileAddress = (path) => `/workspace/files/${encoded(path)}`;

export const nameOf = (path) => path.split("/").at(-1);
export const folderOf = (path) => path.split("/").slice(0, -1).join("/");
export const within = (folder, name) => (folder ? `${folder}/${name}` : name);

/** The entries of a folder from `start` on: `{entries, more, whole, can, max_upload_bytes}`. */
export const list = (path, { start = 0, hidden = false } = {}) => get(`/workspace?${query({ path, start, hidden })}`);

/** Entries anywhere whose name contains the words. */
export const find = (words, { hidden = false } = {}) => get(`/workspace?${query({ q: words, hidden })}`);

/** The entry of a path; null if it is not there. Raises Refused, also where its folder is not. */
export async function entryAt(path) {
  for (let start = 0; ; ) {
    const { entries, more } = await list(folderOf(path), { start, hidden: true });
    const found = entries.find((one) => one.path === path);
    if (found || !more || !entries.length) return found ?? null;
    start += entries.length;
  }
}

export const makeFolder = (path) => post("/workspace/folders", { path });
export const move = (old, now) => post("/workspace/moves", { old, new: now });
export const removeEntry = (path) => remove(fileAddress(path));
export const undoChange = (change) => post(`/workspace/changes/${encodeURIComponent(change)}/undo`);

/** Puts a file there; `conflict` is refuse, replace or keep_both. */
export async function upload(path, file, conflict) {
  const options = { file, wait_ms: UPLOAD_MS };
  return (await request("PUT", `${fileAddress(path)}?${query({ conflict })}`, options)).json();
}

/** Some bytes of a file: `{bytes, size, kind}`; an empty file has none. */
export async function readPart(path, from, length) {
  const headers = { range: `bytes=${from}-${from + length - 1}` };
  const response = await request("GET", fileAddress(path), { headers }).catch((error) => {
    if (error.status === 416) return null; // nothing is behind it
    throw error;
  });
  if (!response) return { bytes: new Uint8Array(), size: from, kind: "" };
  const bytes = new Uint8Array(await response.arrayBuffer());
  const total = /\/(\d+)$/.exec(response.headers.get("content-range") ?? "");
  const kind = response.headers.get("content-type").split(";")[0];
  return { bytes, size: total ? Number(total[1]) : bytes.length, kind };
}

/** The whole file. `kind`: the type that the browser takes it for, never one of a document that runs scripts. */
export async function readBlob(path, kind = "application/octet-stream") {
  return new Blob([await (await request("GET", fileAddress(path))).arrayBuffer()], { type: kind });
}

export async function readArchive(path) {
  return (await request("GET", `/workspace/archive?${query({ path })}`, { wait_ms: UPLOAD_MS })).blob();
}
