/** Building blocks of the panels' forms: labelled fields, action buttons and a line for the result. */

import { button, buttonRow, fill, h } from "./elements.js";
import { locale, t } from "./texts.js";

let fields = 0;

/** A labelled field with an optional description. */
export function field(label, input, hint = null) {
  input.id ||= `field-${++fields}`;
  const note = hint && h("p", { class: "faint", id: `${input.id}-hint` }, hint);
  if (note) input.setAttribute("aria-describedby", note.id);
  return h("div", { class: "entry" }, h("label", { for: input.id }, label), input, note);
}

/** A select of `rows`, each `[value, label]`. */
export const select = (rows, props = {}) => {
  const options = rows.map(([value, label]) => h("option", { value }, label));
  return h("select", props, options);
};

/** A line that says what went wrong, which screen readers read at once; hidden while nothing did. */
export class Problem {
  element = h("p", { class: "problem", role: "alert", hidden: true });

  show(words) {
    this.element.textContent = words ?? "";
    this.element.hidden = !words;
  }
}

/** The same, where something has failed already. */
export const problemLine = (error) => h("p", { class: "problem", role: "alert" }, error.message);

/** A status line, announced to screen readers. `kind`: good, problem or empty. */
export class Outcome {
  constructor() {
    this.element = h("p", { class: "outcome", role: "status", dir: "auto" });
  }

  show(words, kind = "") {
    this.element.dataset.kind = kind;
    fill(this.element, words);
  }

  clear() {
    this.show("");
  }
}

/**
 * Runs `work()` and returns its result, or undefined if it was refused: `outcome` then shows why. Clicks while it runs
 * are ignored. The button that was `pressed` keeps the focus, which a disabled one would lose.
 */
export async function runOnce(pressed, outcome, work) {
  if (pressed.ariaDisabled === "true") return undefined;
  pressed.ariaDisabled = "true";
  outcome.clear();
  try {
    return await work();
  } catch (error) {
    if (typeof error.status !== "number") throw error;
    outcome.show(error.message, "problem");
    return undefined;
  } finally {
    pressed.ariaDisabled = null;
  }
}

/** A button that runs `work`; errors are shown in `outcome`. */
export function actionButton(label, outcome, work, props = {}) {
  const action = button(label, () => runOnce(action, outcome, work), props);
  return action;
}

/** The `onsubmit` of a form: runs `work` by `runOnce`; `submit` is the button that sends the form. */
export const submitting = (submit, outcome, work) => (event) => {
  event.preventDefault();
  return runOnce(submit, outcome, work);
};

/**
 * A form of `fields` with its `submit` button and a line for the result. `send()` runs once; unless it is refused the
 * form is emptied, and `sent(answer, outcome)` follows.
 */
export function sendForm(fields, submit, send, sent) {
  const outcome = new Outcome();
  const onsubmit = async (event) => {
    const answer = await submitting(submit, outcome, send)(event);
    if (!answer) return;
    form.reset();
    await sent(answer, outcome);
  };
  const form = h("form", { class: "form", onsubmit }, fields, buttonRow(submit), outcome.element);
  return form;
}

/** A button that asks for confirmation in its place before an action that cannot be undone. */
export function confirmButton(label, question, yes, outcome, work) {
  const box = h("span", { class: "confirm" });
  const doIt = actionButton(yes, outcome, work, { class: "danger" });
  const open = () => {
    fill(box, h("span", { class: "faint" }, question), doIt, keep);
    keep.focus();
  };
  const back = () => {
    fill(box, ask);
    ask.focus();
  };
  const ask = button(label, open, { class: "danger" });
  const keep = button(t("dialog.cancel"), back);
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || ask.isConnected) return;
    event.preventDefault();
    event.stopPropagation();
    back();
  });
  return fill(box, ask);
}

/** Folds `element`, and returns the button that unfolds it, and folds it again; `words` say how much there is. */
export function foldButton(element, words, onFold = () => undefined) {
  element.classList.add("folded");
  const toggle = () => {
    const folded = element.classList.toggle("folded");
    more.textContent = folded ? words : t("show.less");
    more.setAttribute("aria-expanded", String(!folded));
    if (folded) onFold();
  };
  const more = button(words, toggle, { class: "fold", "aria-expanded": "false" });
  return more;
}

/** A definition list; rows without a value are left out. */
export function factList(rows) {
  const shown = rows.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  const pairs = shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { dir: "auto" }, value)));
  return h("dl", { class: "pairs" }, pairs);
}

/** Shows a row for each of `rows` in a list, or a faint one that says `none`. */
export function fillRows(list, rows, make, none = null) {
  const empty = none && !rows.length && h("li", { class: "faint" }, none);
  fill(list, [...rows.map((row) => make(row)), empty]);
}

/** A collapsible section whose content is created when it is first opened; `part`: its name among others. */
export function collapsible(title, make, part = null) {
  const body = h("div", { class: "folded" });
  const details = h("details", { dataset: { part } }, h("summary", {}, title), body);
  details.addEventListener("toggle", () => {
    if (details.open && !body.firstChild) body.append(make());
  });
  return details;
}

/** `12,400`, in local number format. */
export const formatNumber = (value) => Number(value).toLocaleString(locale);

/** A click handler that needs `load`, an `import()`: clicks while it is loading are ignored. */
export function loadOnce(load, open) {
  let under_way = false;
  return async () => {
    if (under_way) return;
    under_way = true;
    try {
      open(await load());
    } finally {
      under_way = false;
    }
  };
}

/** A keyed list: `make` is called only for rows that have changed. Keeps the focus where possible. */
export class KeyedRows {
  #rows = new Map();

  constructor(element, make) {
    Object.assign(this, { element, make });
  }

  show(rows, keyOf) {
    const focused = document.activeElement;
    const held = [...this.#rows].find(([, { element }]) => element.contains(focused))?.[0];
    this.#rows = new Map(rows.map((row) => [keyOf(row), this.#rowFor(row, this.#rows.get(keyOf(row)))]));
    const elements = [...this.#rows.values()].map(({ element }) => element);
    place(this.element, elements);
    if (held === undefined || document.activeElement === focused) return;
    if (focused.isConnected) focused.focus({ preventScroll: true });
    else moveFocus(focused, this.#rows.get(held)?.element ?? this.element);
  }

  #rowFor(row, known) {
    return unlessChanged(known, row, () => ({ element: this.make(row, known?.element) }));
  }
}

/** `known`, if this function has made it from an equal `value`; else the fields that `make` returns. */
export function unlessChanged(known, value, make) {
  const source = JSON.stringify(value);
  return known?.source === source ? known : { source, ...make() };
}

/** Makes `wanted` the children of an element. Moves only those out of place: moving loses the focus and a click. */
export function place(element, wanted) {
  for (const child of [...element.children]) if (!wanted.includes(child)) child.remove();
  wanted.forEach((one, at) => {
    if (element.children[at] !== one) element.insertBefore(one, element.children[at] ?? null);
  });
}

/** Focuses the equivalent of a removed element, or its row. */
function moveFocus(gone, place) {
  const same = [...place.querySelectorAll(gone.localName)].find(
    (one) => one.value === gone.value && one.textContent === gone.textContent,
  );
  if (!same) place.tabIndex = -1;
  (same ?? place).focus({ preventScroll: true });
}
