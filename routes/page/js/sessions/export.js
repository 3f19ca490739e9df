/** Exports a conversation as a file, which the server writes and names. */

import { request } from "../feed/api.js";
import { saveBlob } from "../dom/download.js";

export const FORMATS = ["markdown", "html", "responses", "json"];

/** Saves the session in one of the formats. Raises errors of the request. */
export async function save(id, format) {
  const headers = { "accept-language": document.documentElement.lang };
  const response = await request("GET", `/sessions/${encodeURIComponent(id)}/export?format=${format}`, { headers });
  const [, name] = response.headers.get("content-disposition").split("''");
  saveBlob(await response.blob(), decodeURIComponent(name));
}
