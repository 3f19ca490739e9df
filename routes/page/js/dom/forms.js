/** What the panels' forms and buttons have in common: fields with labels, and a line that says what came of it. */

import { fill, h } from "./elements.js";

let fields = 0;

/** A labelled field; `hint` is read with it. */
export function field(label, input, hint = null) {
  input.id ||= `field-${++fields}`;
  const note = hint && h("p", { class: "faint", id: `${input.id}-hint` }, hint);
  if (note) input.setAttribute("aria-describedby", note.id);
  return h("div", { class: "entry" }, h("label", { for: input.id }, label), input, note);
}

/** A line that is empty until there is something to say; screen readers are told. `kind`: good, problem or empty. */
export class Outcome {
  constructor() {
    this.element = h("p", { class: "outcome", role: "status", dir: "auto" });
  }

  tell(words, kind = "") {
    this.element.dataset.kind = kind;
    fill(this.element, words);
  }

  clear() {
    this.tell("");
  }
}

/**
 * Does `work()` once, however often the button is pressed meanwhile; a refusal is told in the outcome. Answers with
 * what `work` does, or undefined where it was refused. The button keeps the focus: one that is disabled would lose it.
 */
export async function runOnce(button, outcome, work) {
  if (button.ariaDisabled === "true") return undefined;
  button.ariaDisabled = "true";
  outcome.clear();
  try {
    return await work();
  } catch (error) {
    if (typeof error.status !== "number") throw error;
    outcome.tell(error.message, "problem");
    return undefined;
  } finally {
    button.ariaDisabled = null;
  }
}

/** A button that does something of the server's, and the line beneath that says what was wrong with it. */
export function actionButton(label, outcome, work, props = {}) {
  const button = h("button", { type: "button", ...props, onclick: () => runOnce(button, outcome, work) }, label);
  return button;
}

/** A button that asks in its own place before it does what cannot be undone. */
export function confirmButton(label, question, yes, outcome, work) {
  const box = h("span", { class: "confirm" });
  const ask = h("button", { type: "button", class: "danger" }, label);
  const doIt = actionButton(yes, outcome, work, { class: "danger" });
  const keep = h("button", { type: "button" }, "Cancel");
  const back = () => {
    fill(box, ask);
    ask.focus();
  };
  ask.addEventListener("click", () => {
    fill(box, h("span", { class: "faint" }, question), doIt, keep);
    keep.focus();
  });
  keep.addEventListener("click", back);
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || ask.isConnected) return;
    event.preventDefault();
    event.stopPropagation();
    back();
  });
  return fill(box, ask);
}

/** Rows of a word and what it says, those without a value left out. */
export function factList(rows) {
  const told = rows.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return h(
    "dl",
    { class: "pairs" },
    told.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { dir: "auto" }, value))),
  );
}

/** A folded part of a panel, whose content is made when it is first opened. */
export function collapsible(title, make) {
  const body = h("div", { class: "folded" });
  const details = h("details", {}, h("summary", {}, title), body);
  details.addEventListener("toggle", () => {
    if (details.open && !body.firstChild) body.append(make());
  });
  return details;
}

/** `12,400`, as this browser's person writes numbers. */
export const formatNumber = (value) => Number(value).toLocaleString();

/** What a button does that needs `load`, an `import()`: pressed once more while that is fetched it is no second wish. */
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

/** The rows of a list, in order; `make` is asked again only for those that have changed. Focus stays where it can. */
export class KeyedRows {
  #rows = new Map();

  constructor(element, make) {
    Object.assign(this, { element, make });
  }

  show(rows, keyOf) {
    const focused = document.activeElement;
    const held = [...this.#rows].find(([, { element }]) => element.contains(focused))?.[0];
    this.#rows = new Map(rows.map((row) => [keyOf(row), this.#rowFor(row, this.#rows.get(keyOf(row)))]));
    this.#place([...this.#rows.values()].map(({ element }) => element));
    if (held !== undefined && !focused.isConnected) moveFocus(focused, this.#rows.get(held)?.element ?? this.element);
  }

  #rowFor(row, known) {
    const told = JSON.stringify(row);
    return known?.told === told ? known : { told, element: this.make(row, known?.element) };
  }

  /** Without touching what stands where it belongs: whatever is moved loses the focus. */
  #place(wanted) {
    const { element } = this;
    for (const child of [...element.children]) if (!wanted.includes(child)) child.remove();
    wanted.forEach((one, place) => {
      if (element.children[place] !== one) element.insertBefore(one, element.children[place] ?? null);
    });
  }
}

/** To what does the same as `gone` did, or to the place where it was. */
function moveFocus(gone, place) {
  const same = [...place.querySelectorAll(gone.localName)].find(
    (one) => one.value === gone.value && one.textContent === gone.textContent,
  );
  if (!same) place.tabIndex = -1;
  (same ?? place).focus({ preventScroll: true });
}
