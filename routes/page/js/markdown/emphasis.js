/** Pairs stars, underscores and tildes by CommonMark 0.31 (6.2, Emphasis and strong emphasis). */

import { h } from "../dom/elements.js";

const SPACE = /^[\s\u00a0]?$/u,
  SIGN = /[\p{P}\p{S}]/u,
  DIGIT = /\d/;
// Chinese and Japanese have no spaces around words: a sign beside a letter of theirs is no reason against emphasis.
const DENSE = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}]/u;
const MOST_WAITING = 8;
const DEEPEST = 16; // nesting limit; deeper emphasis stays as written

/** What a run of `mark` between two characters may do: `{opens, closes}`. */
function sides(mark, count, before, after) {
  const blankBefore = SPACE.test(before),
    blankAfter = SPACE.test(after);
  const signBefore = SIGN.test(before),
    signAfter = SIGN.test(after);
  const left = !blankAfter && (!signAfter || blankBefore || signBefore || DENSE.test(before));
  const right = !blankBefore && (!signBefore || blankAfter || signAfter || DENSE.test(after));
  if (mark === "_") return { opens: left && (!right || signBefore), closes: right && (!left || signAfter) };
  if (count === 1 && DIGIT.test(before) && DIGIT.test(after)) return { opens: false, closes: false }; // 2*3*4
  return { opens: left, closes: right };
}

/** The runs of one text, as a list that knows its neighbours; their nodes stand in the fragment. */
export class Runs {
  #depths = new WeakMap();
  last = null;

  push(node, mark, count, before, after) {
    const { opens, closes } = sides(mark, count, before, after);
    if (!opens && !closes) return;
    const run = { node, mark, count, whole: count, opens, closes, previous: this.last, next: null };
    if (this.last) this.last.next = run;
    this.last = run;
  }

  #drop(run) {
    if (run.previous) run.previous.next = run.next;
    if (run.next) run.next.previous = run.previous;
    else this.last = run.previous;
  }

  /** Pairs all runs behind `bottom` (null: all there are) and forgets them. */
  pair(bottom = null) {
    if (this.last === bottom) return;
    const floors = new Map();
    let closer = this.last;
    while (closer && closer.previous !== bottom) closer = closer.previous;
    while (closer) {
      if (!closer.closes) {
        closer = closer.next;
        continue;
      }
      const key = `${closer.mark}${closer.opens}${closer.whole % 3}`;
      const opener = this.#opener(closer, bottom, floors.get(key));
      if (opener && this.#wrap(opener, closer)) {
        if (!closer.count) closer = closer.next;
        continue;
      }
      floors.set(key, closer.previous);
      const tried = closer;
      closer = closer.next;
      if (!tried.opens) this.#drop(tried);
    }
    while (this.last && this.last !== bottom) this.#drop(this.last);
  }

  #opener(closer, bottom, floor) {
    for (let run = closer.previous; run && run !== bottom && run !== floor; run = run.previous) {
      if (run.mark !== closer.mark || !run.opens) continue;
      const odd = (closer.opens || run.closes) && closer.whole % 3 && (run.whole + closer.whole) % 3 === 0;
      if (!odd) return run;
    }
    return null;
  }

  /** Wraps the nodes between two runs; false where the nesting is too deep. */
  #wrap(opener, closer) {
    const used = opener.count >= 2 && closer.count >= 2 ? 2 : 1;
    const tag = opener.mark === "~" ? "s" : used === 2 ? "strong" : "em";
    if (!this.around(tag, opener.node, closer.node)) return false;
    while (closer.previous !== opener) this.#drop(closer.previous);
    for (const run of [opener, closer]) {
      run.count -= used;
      run.node.data = run.mark.repeat(run.count);
      if (!run.count) this.#drop(run);
    }
    return true;
  }

  /** Wraps the nodes after `first` and before `end` (null: to the end); null where the nesting is too deep. */
  around(tag, first, end) {
    let depth = 0;
    for (let node = first.nextSibling; node && node !== end; node = node.nextSibling) {
      depth = Math.max(depth, this.#depths.get(node) ?? 0);
    }
    if (depth >= DEEPEST) return null;
    const element = h(tag);
    while (first.nextSibling && first.nextSibling !== end) element.append(first.nextSibling);
    first.after(element);
    this.#depths.set(element, depth + 1);
    return element;
  }

  /** The nodes of the last runs that wait for their end, from the innermost. */
  waiting() {
    const found = [];
    for (let run = this.last; run && found.length < MOST_WAITING; run = run.previous)
      if (run.opens) found.push(run.node);
    return found;
  }
}
