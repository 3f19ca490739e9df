/**
 * Fetches a vendored library when it is first needed (routes/page/vendor, `make vendor`). A library that cannot be
 * loaded rejects in bounded time, and is tried again later: what it would have drawn stays as it is.
 */

const VENDOR = "../../vendor/";
const LONGEST_MS = 30_000;
const AGAIN_MS = 10_000;
const loads = new Map();

/** The default export, or else the module, of `library("xterm/xterm.mjs", { style: "xterm/xterm.css" })`. */
export function library(path, { style } = {}) {
  return once(path, async () => {
    const [module] = await Promise.all([import(urlOf(path)), style && stylesheet(style)]);
    return module.default ?? module;
  });
}

/** The source of a vendored file, for a frame that may fetch nothing. */
export function librarySource(path) {
  return once(`source of ${path}`, async () => {
    const answer = await fetch(urlOf(path));
    if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
    return answer.text();
  });
}

/** A vendored font, which the browser fetches when a text needs it. */
export function libraryFont(family, path) {
  document.fonts.add(new FontFace(family, `url(${urlOf(path)})`));
}

/** Resolves when a style of the page's own applies. */
export const styleAt = (path) => once(path, () => stylesheet(`../${path}`));

const urlOf = (path) => new URL(VENDOR + path, import.meta.url).href;

/** What `load` gives, loaded once; a failure is forgotten after a while. */
function once(name, load) {
  if (!loads.has(name)) {
    const loading = inTime(load(), name);
    loads.set(name, loading);
    loading.catch(() => setTimeout(() => loads.delete(name), AGAIN_MS));
  }
  return loads.get(name);
}

function inTime(loading, name) {
  const { promise, reject } = Promise.withResolvers();
  const timer = setTimeout(() => reject(new Error(`${name} was not loaded in time`)), LONGEST_MS);
  return Promise.race([loading, promise]).finally(() => clearTimeout(timer));
}

function stylesheet(path) {
  const { promise, resolve, reject } = Promise.withResolvers();
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.onload = resolve;
  link.onerror = () => reject(new Error(`${path} could not be loaded`));
  link.href = urlOf(path);
  document.head.append(link);
  return promise;
}
