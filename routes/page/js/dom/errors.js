/** What breaks on the page is said in a line that stays until somebody has seen it: nothing breaks in silence. */

const PARTS = new Set(["script", "link"]);
const MISSING = "A part of the page could not be loaded.";
const FETCHED = /\bimport(ed|ing)\b/i; // by this browsers tell of a module that was needed later and did not come
const shown = new Set();
let box = null;

/** Calls `tell(...given)`; if that breaks, the rest of the page goes on, and the line says what has happened. */
export function guarded(report, ...given) {
  try {
    return report(...given);
  } catch (error) {
    reportError(error); // comes back by the listener below, and stands on the console
  }
}

/** Shows the words, once each; `refresh` offers to load the page anew. */
export function showError(words, { refresh = true } = {}) {
  if (shown.has(words)) return;
  shown.add(words);
  const line = box ?? createBox();
  line.words.textContent = [...shown].join(" · ");
  line.refresh.hidden &&= !refresh;
}

/** Elements by hand: this file stands alone, because it must work where another one of the page does not load. */
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

/** What the server refuses is said as it says it: there nothing is broken, and nothing need be loaded anew. */
function tell(error) {
  if (error?.name === "AbortError") return;
  if (typeof error?.status === "number") showError(error.message, { refresh: false });
  else if (error instanceof TypeError && FETCHED.test(error.message)) showError(MISSING);
  else showError(`Part of the page failed:  ${error?.message ?? error}`);
}

function onError(event) {
  if (PARTS.has(event.target.localName)) showError(MISSING);
  if (event.target !== window) return;
  // Browsers report by the same event that an observer's work goes on in the next frame, which is no error.
  if (event.message?.startsWith("ResizeObserver loop")) return;
  tell(event.error ?? event.message);
}

addEventListener("error", onError, true); // what cannot be loaded does not bubble
addEventListener("unhandledrejection", (event) => tell(event.reason));
