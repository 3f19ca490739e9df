/** Where the reader is in a long text that grows: at its end, which is followed, or somewhere above, which stays put. */

import { h, icon } from "../dom/elements.js";

const AT_END = 8,
  NEAR_END = 80; // pixels from the end that are the end, and that count as it for who moves towards it

const FRAMES = 6; // until what can be seen has been laid out: its size is estimated before that

function nextFrame() {
  return new Promise((resolve) => {
    requestAnimationFrame(resolve);
    setTimeout(resolve, 100); // nobody looks at the page
  });
}

export class ScrollFollower {
  #box;
  #list;
  #last = 0;
  #anchor = null;
  #hasNews = false;

  /** `box` scrolls, `list` is what grows in it. */
  constructor(box, list) {
    this.#box = box;
    this.#list = list;
    this.following = true;
    const props = { type: "button", class: "to-end", hidden: true, onclick: () => this.toEnd() };
    this.words = h("span", { class: "to-end-words" });
    this.button = h("button", props, icon("down"), this.words);
    box.append(h("div", { class: "to-end-place" }, this.button));
    box.addEventListener("scroll", () => this.#moved(), { passive: true });
    const grown = new ResizeObserver(() => this.settle());
    grown.observe(list);
    grown.observe(box);
  }

  /** To the end, and along with it from now on. */
  toEnd() {
    this.#anchor = null;
    this.following = true;
    this.settle();
    this.#box.focus({ preventScroll: true });
  }

  /** Puts the view where it belongs after what is in it has changed. */
  settle() {
    const box = this.#box;
    if (!this.#list.firstElementChild) return this.#show(); // what stands there instead is read from its beginning
    if (this.following) box.scrollTop = box.scrollHeight;
    else if (this.#anchor) box.scrollTop += this.#offset(this.#anchor.element) - this.#anchor.offset;
    this.#last = box.scrollTop;
    this.#show();
  }

  /** Something new stands at the end: who does not look there is told. */
  news() {
    if (this.following || this.#hasNews) return;
    this.#hasNews = true;
    this.#show();
  }

  /**
   * While `work()` goes on, what the reader sees stays where it is, whatever is put above it. `place` is where to be
   * instead: `{element, offset}`, see `place`.
   */
  async holding(work, place = this.place) {
    if (place) this.following = false;
    this.#anchor = place;
    // Browsers hold on to something as well, but not at the very top, and some not at all: one of the two is enough.
    this.#box.style.setProperty("overflow-anchor", "none");
    try {
      await work();
      for (let frame = 0; frame < FRAMES && this.#anchor === place; frame++) {
        this.settle();
        await nextFrame();
      }
    } finally {
      this.#anchor = null;
      this.#box.style.removeProperty("overflow-anchor");
    }
  }

  /** The first child of the list that can be seen, and how far from the top it is; null at the end of the text. */
  get place() {
    if (this.following) return null;
    const top = this.#box.getBoundingClientRect().top;
    const element = [...this.#list.children].find((child) => child.getBoundingClientRect().bottom > top);
    return element ? { element, offset: this.#offset(element) } : null;
  }

  /** As at the beginning: at the end of what is to come. */
  reset() {
    this.#anchor = null;
    this.following = true;
    this.#box.scrollTop = 0;
    this.settle();
  }

  #offset(element) {
    return Math.round(element.getBoundingClientRect().top - this.#box.getBoundingClientRect().top);
  }

  #moved() {
    const box = this.#box;
    const left = box.scrollHeight - box.scrollTop - box.clientHeight;
    if (box.scrollTop === this.#last) return this.#show(); // that was us
    const up = box.scrollTop < this.#last - 2,
      down = box.scrollTop > this.#last + 2;
    if (up && left > AT_END) this.following = false;
    else if (!this.#anchor && (left <= AT_END || (down && left < NEAR_END))) this.following = true;
    this.#last = box.scrollTop;
    if (this.#anchor) this.#anchor.offset = this.#offset(this.#anchor.element);
    this.#show();
  }

  #show() {
    const box = this.#box;
    const away =
      !this.following && this.#list.firstElementChild && box.scrollHeight - box.scrollTop - box.clientHeight > NEAR_END;
    if (!away) this.#hasNews = false;
    this.button.hidden = !away;
    this.button.setAttribute("aria-label", this.#hasNews ? "To the end: there is something new" : "To the end");
    this.words.textContent = this.#hasNews ? "New" : "";
  }
}
