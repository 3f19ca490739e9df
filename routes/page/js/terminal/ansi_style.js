/** The style of a terminal span: `{fg, bg, flags}`; equal styles are the same object. */

export const BOLD = 1;
export const DIM = 2;
export const ITALIC = 4;
export const UNDERLINE = 8;
export const INVERSE = 16;
export const STRIKE = 32;

const TRUE = 0x1000000; // a colour is null, one of 256, or this and its red, green and blue
const MAX_CACHED = 4_096;

export const PLAIN = Object.freeze({ fg: null, bg: null, flags: 0 });
const cache = new Map();

const ON = { 1: BOLD, 2: DIM, 3: ITALIC, 4: UNDERLINE, 7: INVERSE, 9: STRIKE, 21: UNDERLINE };
const OFF = { 22: BOLD | DIM, 23: ITALIC, 24: UNDERLINE, 27: INVERSE, 29: STRIKE };

/** The look after `ESC [ parameters m`. What it does not know it leaves as it was. */
export function styled(style, parameters) {
  const codes = parameters.split(";");
  const look = { ...style };
  for (let at = 0; at < codes.length; at++) at += change(look, codes, at);
  return shared(look);
}

/** Applies one code; returns how many of the following belong to it. */
function change(look, codes, at) {
  const [first, ...parts] = codes[at].split(":");
  const code = Number(first || 0);
  if (code === 38 || code === 48) return extended(look, code === 38 ? "fg" : "bg", parts, codes, at);
  if (code === 0) Object.assign(look, PLAIN);
  else if (code === 4 && parts[0] === "0") look.flags &= ~UNDERLINE;
  else if (ON[code]) look.flags |= ON[code];
  else if (OFF[code]) look.flags &= ~OFF[code];
  else if (code === 39) look.fg = null;
  else if (code === 49) look.bg = null;
  else if (code >= 30 && code <= 37) look.fg = code - 30;
  else if (code >= 40 && code <= 47) look.bg = code - 40;
  else if (code >= 90 && code <= 97) look.fg = code - 82;
  else if (code >= 100 && code <= 107) look.bg = code - 92;
  return 0;
}

/** `38;5;n`, `38;2;r;g;b`, and both with colons, where a place for a colour space may stand in between. */
function extended(look, which, parts, codes, at) {
  const own = parts.length > 0;
  const given = own ? parts : codes.slice(at + 1, at + 5);
  const numbers = given.map((one) => Math.min(255, Number.parseInt(one, 10) || 0));
  if (numbers[0] === 5) {
    look[which] = numbers[1] ?? 0;
    return own ? 0 : 2;
  }
  if (numbers[0] !== 2) return 0;
  const [red = 0, green = 0, blue = 0] = own ? numbers.slice(-3) : numbers.slice(1);
  look[which] = TRUE | (red << 16) | (green << 8) | blue;
  return own ? 0 : 4;
}

function shared(look) {
  if (look.fg === null && look.bg === null && !look.flags) return PLAIN;
  const key = `${look.fg},${look.bg},${look.flags}`;
  const found = cache.get(key);
  if (found) return found;
  if (cache.size >= MAX_CACHED) cache.clear(); // a picture in true colour
  cache.set(key, Object.freeze(look));
  return look;
}

const CUBE = [0, 95, 135, 175, 215, 255];

/** `[red, green, blue]` of a colour beyond the first 16. */
export function rgbOf(colour) {
  if (colour >= TRUE) return [(colour >> 16) & 255, (colour >> 8) & 255, colour & 255];
  if (colour >= 232) return [1, 1, 1].map(() => 8 + 10 * (colour - 232));
  const at = colour - 16;
  return [CUBE[Math.floor(at / 36)], CUBE[Math.floor(at / 6) % 6], CUBE[at % 6]];
}
