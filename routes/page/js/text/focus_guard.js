/**
 * Keeps the focus with the page. A document in a frame may take it at any time, and what is typed next with it; no
 * policy of a browser prevents that. It is given back unless the person went to the frame: by Tab, or with a pointer.
 */

const TYPING_MS = 2_000; // since the last key: until then nobody changes over by pointer
const MOST = 5; // times that it is given back

/** Watches `frame` until `signal`. `greedy()` is called when the frame does not leave the focus alone. */
export function guardFocus(frame, signal, greedy) {
  let left = null,
    isNear = matchMedia("(hover: none)").matches,
    key = "",
    typed = Number.NEGATIVE_INFINITY,
    returned = 0;
  const on = (target, name, listener) => target.addEventListener(name, listener, { signal, capture: true });
  on(document, "focusout", ({ target }) => {
    left = target;
  });
  on(document, "keydown", (event) => {
    key = event.key;
    typed = performance.now();
  });
  const moved = ({ type, pointerType }) => {
    if (pointerType === "mouse") isNear = type === "pointerenter";
  };
  on(frame, "pointerenter", moved);
  on(frame, "pointerleave", moved);
  const check = () => {
    if (signal.aborted || document.activeElement !== frame || key === "Tab") return;
    if (isNear && performance.now() - typed > TYPING_MS) return;
    frame.blur();
    if (left?.isConnected && left !== frame) left.focus({ preventScroll: true });
    if ((returned += 1) >= MOST) greedy();
  };
  on(window, "blur", () => setTimeout(check)); // the frame has it only then
}
