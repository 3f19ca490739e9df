/** Shows errors of the page in a line that stays until it is closed. */

const PARTS = new Set(["script", "link"]);
const MISSING = "A part of the page could not be loaded.";
const FETCHED = /\bimport(ed|ing)\b/i; // how browsers report that a dynamic import has failed
const shown = new Set();
let box = null;

/** Calls `callback(...given)`; an error does not affect the caller and is shown in the line. */
export function guarded(callback, ...given) {
  try {
    return callback(...given);
  } catch (error) {
    reportError(error); // reaches the listener below and the console
  }
}

/** Shows an error, each text once; `refresh` offers to reload the page. */
export function showError(words, { refresh = true } = {}) {
  if (shown.has(words)) return;
  shown.add(words);
  const line = box ?? createBox();
  line.words.textContent = [...shown].join(" · ");
  line.refresh.hidden &&= !refresh;
}

/** Without h(): this module has no imports, because it must work when others fail to load. */
function createBox() {
  const element = document.createElement("div");
  const words = document.createElement("span");
  const refresh = button("Reload the page", () => location.reload());
  const close = button("Close", () => {
    element.remove();
    shown.clear();
    box = null;
  });
  refresh.hidden = true;
  element.className = "page-error";
  element.setAttribute("role", "alert");
  element.append(words, refresh, close);
  document.body.prepend(element);
  box = { element, words, refresh };
  return box;
}

function button(words, onclick) {
  const element = document.createElement("button");
  element.type = "button";
  element.append(words);
  element.addEventListener("click", onclick);
  return element;
}

/** Errors of the server are shown as they are, without an offer to reload. */
function report(error) {
  if (error?.name === "AbortError") return;
  if (typeof error?.status === "number") showError(error.message, { refresh: false });
  else if (error instanceof TypeError && FETCHED.test(error.message)) showError(MISSING);
  else showError(`Part of the page failed:  ${error?.message ?? error}`);
}

function onError(event) {
  if (PARTS.has(event.target.localName)) showError(MISSING);
  if (event.target !== window) return;
  // Browsers report this harmless condition through the same event.
  if (event.message?.startsWith("ResizeObserver loop")) return;
  report(event.error ?? event.message);
}

addEventListener("error", onError, true); // resource errors do not bubble, hence the capture phase
addEventListener("unhandledrejection", (event) => report(event.reason));
