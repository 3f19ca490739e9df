/** Keeps the scroll position of growing content: follows the end, or holds the position that is being read. */

import { button, h, icon } from "../dom/elements.js";
import { t } from "../dom/texts.js";

const AT_END = 8,
  NEAR_END = 80; // pixels from the end that count as the end, and as the end while scrolling down

const FRAMES = 6; // until visible content is laid out: its size is only estimated before

function nextFrame() {
  return new Promise((resolve) => {
    requestAnimationFrame(resolve);
    setTimeout(resolve, 100); // hidden pages get no frames
  });
}

export class ScrollFollower {
  #box;
  #list;
  #last = 0;
  #anchor = null;
  #hasNews = false;

  /** `box` scrolls, `list` grows inside it. */
  constructor(box, list) {
    this.#box = box;
    this.#list = list;
    this.following = true;
    this.words = h("span", { class: "to-end-words" });
    this.button = button([icon("down"), this.words], () => this.toEnd(), { class: "to-end", hidden: true });
    box.append(h("div", { class: "to-end-place" }, this.button));
    box.addEventListener("scroll", () => this.#moved(), { passive: true });
    const grown = new ResizeObserver(() => this.settle());
    grown.observe(list);
    grown.observe(box);
  }

  /** Scrolls to the end and follows it. */
  toEnd() {
    this.#anchor = null;
    this.following = true;
    // The button is about to be hidden, and the message box keeps the focus of a message that was just sent.
    if (document.activeElement === this.button) this.#box.focus({ preventScroll: true });
    this.settle();
  }

  /** Restores the position after the content has changed. */
  settle() {
    const box = this.#box;
    if (!this.#list.firstElementChild) return this.#show(); // other content is read from its beginning
    if (this.following) box.scrollTop = box.scrollHeight;
    else if (this.#anchor) box.scrollTop += this.#offset(this.#anchor.element) - this.#anchor.offset;
    this.#last = box.scrollTop;
    this.#show();
  }

  /** Something was added at the end: marks the button if the end is not in view. */
  contentAdded() {
    if (this.following || this.#hasNews) return;
    this.#hasNews = true;
    this.#show();
  }

  /**
   * Keeps the visible content in place during `work()`, whatever is inserted above it. `place`: another position,
   * `{element, offset}`, see `place`.
   */
  async holdPosition(work, place = this.place) {
    if (place) this.following = false;
    this.#anchor = place;
    // Only one of the two may adjust: browsers' own anchoring does not work at the very top, and not in all of them.
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

  /** The first visible child of the list and its distance from the top; null at the end of the text. */
  get place() {
    if (this.following) return null;
    const top = this.#box.getBoundingClientRect().top;
    const element = [...this.#list.children].find((child) => child.getBoundingClientRect().bottom > top);
    return element ? { element, offset: this.#offset(element) } : null;
  }

  /** Resets to following the end. */
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
    if (box.scrollTop === this.#last) return this.#show(); // scrolled by this class
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
    this.button.setAttribute("aria-label", t(this.#hasNews ? "scroll.end.news" : "scroll.end"));
    this.words.textContent = this.#hasNews ? t("scroll.news") : "";
  }
}
