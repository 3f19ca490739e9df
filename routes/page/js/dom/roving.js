/** A list with one tab stop: arrow keys, Home and End move in it, and to the right what stands beside a row. */

const FOLLOWS = Node.DOCUMENT_POSITION_FOLLOWING;

export class Roving {
  #at = null;

  /** `rows` and `aside`: selectors within `box`, of elements with the tabindex -1. */
  constructor(box, rows, aside = "none") {
    Object.assign(this, { box, rows, aside });
    box.addEventListener("keydown", (event) => this.#key(event));
    box.addEventListener("focusin", ({ target }) => target.matches(rows) && this.update(target));
  }

  /** After rows have come or gone: the row that was last in use is the tab stop, at first the current one. */
  update(at = this.#at) {
    const isThere = at && this.box.contains(at) && !at.closest("[hidden]");
    const rows = isThere ? [] : this.#list();
    const next = isThere ? at : (rows.find((row) => row.ariaCurrent) ?? rows[0]);
    if (this.#at) this.#at.tabIndex = -1;
    this.#at = next;
    if (next) next.tabIndex = 0;
  }

  #list() {
    return [...this.box.querySelectorAll(this.rows)].filter((row) => !row.closest("[hidden]"));
  }

  #key(event) {
    const { target, key } = event;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (!target.matches(`${this.rows}, ${this.aside}`)) return;
    const rows = this.#list();
    const at = rows.findLastIndex((row) => row === target || row.compareDocumentPosition(target) & FOLLOWS);
    const beside = () =>
      [...this.box.querySelectorAll(this.aside)].find((one) => rows[at].compareDocumentPosition(one) & FOLLOWS);
    const goes = {
      ArrowDown: () => rows[at + 1],
      ArrowUp: () => rows[at - 1],
      Home: () => rows[0],
      End: () => rows.at(-1),
      ArrowRight: beside,
      ArrowLeft: () => rows[at],
    }[key]?.();
    if (!goes) return;
    event.preventDefault();
    goes.focus();
  }
}
