/** Escapes invisible characters, and those that change the text direction, where they would mislead. */

// Flags of regions are a black flag and tags: nothing is hidden there.
const FLAG = "\\u{1F3F4}[\\u{E0061}-\\u{E007A}]{3,6}\\u{E007F}";
const NEVER = "\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u2028\\u2029\\u202d\\u202e\\u{E0000}-\\u{E007F}";
const EXACT =
  NEVER +
  "\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b\\u200c\\u200e\\u200f" +
  "\\u202a-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb\\u{E0100}-\\u{E01EF}";
const PROSE = new RegExp(`${FLAG}|[${NEVER}]`, "gu");
// A joiner belongs between the parts of a picture, and hides elsewhere.
const CODE = new RegExp(`${FLAG}|[${EXACT}]|(?<![\\p{Extended_Pictographic}\\p{Emoji_Modifier}\\ufe0f])\\u200d`, "gu");

/** What people and models say: languages that need marks of direction and joiners keep them. */
export const escapeProse = (text) => text.replace(PROSE, escapeCharacter);

/** Code, addresses and the words of links: whatever is in it can be seen. */
export const escapeCode = (text) => text.replace(CODE, escapeCharacter);

function escapeCharacter(found) {
  if (found.length > 2) return found;
  return `⟨${codeOf(found)}⟩`;
}

/** `U+202E` of the character. */
export const codeOf = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
