/** Character references: all numbers, and the names that models write. A table of all 2,125 would weigh more than this folder. */

const LATIN = // U+00A0 to U+00FF
  "nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn sup2 sup3 acute micro " +
  "para middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest Agrave Aacute Acirc Atilde Auml Aring AElig Ccedil " +
  "Egrave Eacute Ecirc Euml Igrave Iacute Icirc Iuml ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times Oslash Ugrave " +
  "Uacute Ucirc Uuml Yacute THORN szlig agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc euml " +
  "igrave iacute icirc iuml eth ntilde ograve oacute ocirc otilde ouml divide oslash ugrave uacute ucirc uuml yacute " +
  "thorn yuml";
const OTHERS =
  "quot \" amp & lt < gt > apos ' num # dollar $ lpar ( rpar ) ast * period . lowbar _ grave ` lbrack [ rbrack ] lbrace { " +
  "rbrace } vert | bsol \\ colon : ndash – mdash — lsquo ‘ rsquo ’ ldquo “ rdquo ” bull • hellip … euro € trade ™ larr ← " +
  "uarr ↑ rarr → darr ↓ harr ↔ rArr ⇒ minus − infin ∞ asymp ≈ ne ≠ le ≤ ge ≥ check ✓ cross ✗ alpha α beta β pi π";

export const ENTITY = /&(?:([a-z][a-z\d]{1,9})|#(\d{1,7})|#x([\da-f]{1,6}));/iy;

let table = null;

function tableOf() {
  const found = new Map(),
    others = OTHERS.split(" ");
  for (let at = 0; at < others.length; at += 2) found.set(others[at], others[at + 1]);
  for (const [at, name] of LATIN.split(" ").entries()) found.set(name, String.fromCharCode(0xa0 + at));
  return found;
}

/** The character of a match of ENTITY; an unknown name stays as it was written. */
export function characterOf([written, name, decimal, hex]) {
  if (name) return (table ??= tableOf()).get(name) ?? written;
  const point = decimal ? Number(decimal) : parseInt(hex, 16);
  const valid = point > 0 && point <= 0x10ffff && (point < 0xd800 || point >= 0xe000);
  return String.fromCodePoint(valid ? point : 0xfffd);
}

const ESCAPED = new RegExp(`\\\\([!-/:-@[-\`{-~])|${ENTITY.source}`, "gi");

/** Addresses, titles and names of languages, where backslashes and references mean what they do in text. */
export const unescaped = (text) =>
  text.replace(ESCAPED, (written, sign, ...reference) => sign ?? characterOf([written, ...reference]));
