/** Syntax colours: one pattern per language, matched in a single pass, in short slices. */

import { h } from "../dom/elements.js";
import { languageOf } from "./languages.js";
import { yieldToBrowser } from "../dom/scheduling.js";

const MOST = 100_000; // characters: longer code is not coloured
const SLICE_MS = 6;

let last = Promise.resolve();

/** Colours the parts of a `<code>`, when there is time. */
export function paint(code, language) {
  const known = languageOf(language);
  if (!known) return;
  last = last.then(() => paintNow(code, known));
}

async function paintNow(code, language) {
  await yieldToBrowser();
  const parts = [...code.children],
    text = code.textContent;
  if (text.length > MOST) return;
  const painted = painting(parts, tokens(text, language));
  let began = performance.now();
  while (!painted.next().done) {
    if (performance.now() - began < SLICE_MS) continue;
    await yieldToBrowser();
    began = performance.now();
  }
}

/** Replaces the text of the parts, one after the other, by the same text in colours. */
function* painting(parts, found) {
  let place = 0,
    room = parts[0]?.textContent.length ?? 0,
    drawn = [];
  for (let { kind, text } of found) {
    while (text) {
      const piece = text.slice(0, room);
      if (piece) drawn.push(kind ? h("span", { class: `c-${kind}` }, piece) : piece);
      text = text.slice(piece.length);
      room -= piece.length;
      if (room > 0) continue;
      parts[place]?.replaceChildren(...drawn);
      [place, drawn] = [place + 1, []];
      if (place >= parts.length) return;
      room = parts[place].textContent.length;
    }
    yield;
  }
}

/** The text in pieces: `{kind, text}`, kind null where it has no colour. Nothing is left out. */
export function* tokens(text, language) {
  let from = 0;
  for (const match of text.matchAll(language.pattern)) {
    const kind = language.kind(match, text);
    if (!kind) continue;
    if (match.index > from) yield { kind: null, text: text.slice(from, match.index) };
    yield { kind, text: match[0] };
    from = match.index + match[0].length;
  }
  if (from < text.length) yield { kind: null, text: text.slice(from) };
}
