/** A list with one tab stop: arrow keys, Home and End move in it, and to the right what stands beside a row. */

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
    const rows = this.#list(this.rows);
    this.#at?.setAttribute("tabindex", -1);
    this.#at = rows.includes(at) ? at : (rows.find((row) => row.ariaCurrent) ?? rows[0]);
    this.#at?.setAttribute("tabindex", 0);
  }

  #list = (selector) => [...this.box.querySelectorAll(selector)].filter((one) => !one.closest("[hidden]"));

  #key(event) {
    const all = this.#list(`${this.rows}, ${this.aside}`);
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !all.includes(event.target)) return;
    const rows = all.filter((one) => one.matches(this.rows));
    const place = all.indexOf(event.target);
    const row = all.findLast((one, at) => at <= place && one.matches(this.rows));
    const at = rows.indexOf(row);
    const beside = all[all.indexOf(row) + 1];
    const goes = { ArrowDown: rows[at + 1], ArrowUp: rows[at - 1], Home: rows[0], End: rows.at(-1), ArrowLeft: row };
    if (beside?.matches(this.aside)) goes.ArrowRight = beside;
    if (!goes[event.key]) return;
    event.preventDefault();
    goes[event.key].focus();
  }
}
