/**
 * Character references: all numeric ones, and of the 2,125 names those of HTML 4 and of the signs of Markdown (the
 * others are rare in what models write, and their table would weigh more than all of this folder).
 */

const LATIN = // U+00A0 to U+00FF
  "nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn sup2 sup3 acute micro " +
  "para middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest Agrave Aacute Acirc Atilde Auml Aring AElig Ccedil " +
  "Egrave Eacute Ecirc Euml Igrave Iacute Icirc Iuml ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times Oslash Ugrave " +
  "Uacute Ucirc Uuml Yacute THORN szlig agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc euml " +
  "igrave iacute icirc iuml eth ntilde ograve oacute ocirc otilde ouml divide oslash ugrave uacute ucirc uuml yacute " +
  "thorn yuml";
const GREEK = // U+03B1 to U+03C9, and without the second sigma the capitals
  "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigmaf sigma tau upsilon " +
  "phi chi psi omega";
const OTHERS =
  "quot \" amp & lt < gt > apos ' excl ! num # dollar $ percnt % lpar ( rpar ) ast * plus + comma , period . sol / " +
  "colon : semi ; equals = quest ? commat @ lsqb [ lbrack [ bsol \\ rsqb ] rbrack ] Hat ^ lowbar _ grave ` lcub { " +
  "lbrace { verbar | vert | rcub } rbrace } OElig Œ oelig œ Scaron Š scaron š Yuml Ÿ fnof ƒ circ ˆ tilde ˜ thetasym ϑ " +
  "upsih ϒ piv ϖ ndash – mdash — lsquo ‘ rsquo ’ sbquo ‚ ldquo “ rdquo ” bdquo „ dagger † Dagger ‡ bull • hellip … " +
  "permil ‰ prime ′ Prime ″ lsaquo ‹ rsaquo › oline ‾ frasl ⁄ euro € image ℑ weierp ℘ real ℜ trade ™ alefsym ℵ larr ← " +
  "uarr ↑ rarr → darr ↓ harr ↔ crarr ↵ lArr ⇐ uArr ⇑ rArr ⇒ dArr ⇓ hArr ⇔ forall ∀ part ∂ exist ∃ empty ∅ nabla ∇ " +
  "isin ∈ notin ∉ ni ∋ prod ∏ sum ∑ minus − lowast ∗ radic √ prop ∝ infin ∞ ang ∠ and ∧ or ∨ cap ∩ cup ∪ int ∫ " +
  "there4 ∴ sim ∼ cong ≅ asymp ≈ ne ≠ equiv ≡ le ≤ ge ≥ sub ⊂ sup ⊃ nsub ⊄ sube ⊆ supe ⊇ oplus ⊕ otimes ⊗ perp ⊥ " +
  "sdot ⋅ lceil ⌈ rceil ⌉ lfloor ⌊ rfloor ⌋ lang ⟨ rang ⟩ loz ◊ spades ♠ clubs ♣ hearts ♥ diams ♦ check ✓ cross ✗ " +
  "star ☆ starf ★";
const SPACES = { ensp: 0x2002, emsp: 0x2003, thinsp: 0x2009, zwnj: 0x200c, zwj: 0x200d, lrm: 0x200e, rlm: 0x200f };

export const ENTITY = /&(?:([a-z][a-z\d]{1,9})|#(\d{1,7})|#x([\da-f]{1,6}));/iy;

let table = null;

function tableOf() {
  const found = new Map(Object.entries(SPACES).map(([name, point]) => [name, String.fromCharCode(point)]));
  const others = OTHERS.split(" ");
  for (let at = 0; at < others.length; at += 2) found.set(others[at], others[at + 1]);
  for (const [at, name] of LATIN.split(" ").entries()) found.set(name, String.fromCharCode(0xa0 + at));
  for (const [at, name] of GREEK.split(" ").entries()) {
    found.set(name, String.fromCharCode(0x3b1 + at));
    if (name !== "sigmaf") found.set(name[0].toUpperCase() + name.slice(1), String.fromCharCode(0x391 + at));
  }
  return found;
}

/** The character of a match of ENTITY; an unknown name stays as it was written. */
export function characterOf([written, name, decimal, hex]) {
  if (name) return (table ??= tableOf()).get(name) ?? written;
  const point = decimal ? Number(decimal) : parseInt(hex, 16);
  const valid = point > 0 && point <= 0x10ffff && (point < 0xd800 || point >= 0xe000);
  return String.fromCodePoint(valid ? point : 0xfffd);
}

const ESCAPED = /\\([!-/:-@[-`{-~])|&(?:([a-z][a-z\d]{1,9})|#(\d{1,7})|#x([\da-f]{1,6}));/gi;

/** Addresses, titles and names of languages, where backslashes and references mean what they do in text. */
export const unescaped = (text) =>
  text.replace(ESCAPED, (written, sign, ...reference) => sign ?? characterOf([written, ...reference]));
