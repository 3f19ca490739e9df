/** JSON that preserves large integers: browsers keep about 16 digits of a number and round the rest. */

const LONG = /(?<![\d.])\d{16}/;
// What begins or ends a string, what does not, and whole numbers that may be too long.
const PARTS = /"|\\.|(?<![\d.]|[eE][+-]?)-?\d{16,}(?![\d.eE])/gs;
const MARK = `${crypto.getRandomValues(new Uint32Array(4)).join("-")}:`; // random, so that no input can contain it

/** An integer that a browser would round. It is serialised as written; as a string where JSON.rawJSON is missing. */
class ExactInteger {
  constructor(digits) {
    this.digits = digits;
  }

  toString() {
    return this.digits;
  }

  toJSON() {
    return JSON.rawJSON ? JSON.rawJSON(this.digits) : this.digits;
  }
}

export const isExactInteger = (value) => value instanceof ExactInteger;

/** What JSON says. Raises SyntaxError. */
export function parseJSON(text) {
  const given = LONG.test(text) ? marked(text) : text;
  return given === text ? JSON.parse(text) : JSON.parse(given, revived);
}

/** The number that somebody has written into a field. */
export function parseNumber(text) {
  const number = Number(text);
  if (Number.isSafeInteger(number) || !/^-?\d+$/.test(text)) return number;
  return new ExactInteger(String(BigInt(text)));
}

function marked(text) {
  let inside = false;
  return text.replace(PARTS, (found) => {
    if (found === '"') inside = !inside;
    const rounded = !inside && found.length > 2 && !Number.isSafeInteger(Number(found));
    return rounded ? `"${MARK}${found}"` : found;
  });
}

function revived(_, value) {
  return typeof value === "string" && value.startsWith(MARK) ? new ExactInteger(value.slice(MARK.length)) : value;
}
