/**
 * HTML in what models write. A few tags without attributes mean what they say; all other HTML stays the text that it
 * is, each tag as a whole: a star in an attribute is no emphasis.
 */

export const BREAK = /<br[ \t]*\/?>/iy;
export const TAG = /<(\/?)(b|i|em|strong|u|s|del|ins|mark|kbd|sub|sup|small)>/iy;
export const TAG_BEGUN = /<\/?(?:[a-z]{0,5}|details|summary|summa?r?|stron|strong)$/i; // it may be one in the end

const ATTRIBUTE = "\\s+[a-z_:][\\w.:-]*(?:\\s*=\\s*(?:[^\\s\"'=<>`]+|'[^']*'|\"[^\"]*\"))?";
export const HTML = new RegExp(
  `<(?:/[a-z][a-z\\d-]*\\s*|[a-z][a-z\\d-]*(?:${ATTRIBUTE})*\\s*/?` +
    "|!--(?:-?(?=>)|.*?--)|\\?.*?\\?|![a-z][^>]*|!\\[CDATA\\[.*?\\]\\])>",
  "isy",
);
export const ADDRESS = /<([a-z][a-z\d+.-]{1,31}:[^\s<>\0-\x20]*)>/iy;
export const EMAIL =
  /<([\w.!#$%&'*+/=?^`{|}~-]{1,64}@[a-z\d](?:[a-z\d-]{0,61}[a-z\d])?(?:\.[a-z\d](?:[a-z\d-]{0,61}[a-z\d])?)*)>/iy;

const DETAILS = /^<details>[ \t]*/i,
  SUMMARY = /^<summary>(.*?)(?:<\/summary>[ \t]*|$)/i,
  END = /^<\/details>[ \t]*$/i;

/** `<details>`, its `<summary>` and its end, each at the beginning of a line. */
export function details({ words }, { inner, folds }) {
  if (words[0] !== "<") return null;
  const opened = DETAILS.exec(words);
  if (opened) return { kind: "details", container: true, width: opened[0].length };
  if (folds && END.test(words)) return { kind: "detailsEnd", instead: true };
  const summary = inner.kind === "details" && !inner.filled && SUMMARY.exec(words);
  return summary ? { kind: "summary", container: true, text: summary[1], width: summary[0].length } : null;
}
