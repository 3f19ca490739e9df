/** The languages that have syntax colours, one row each: patterns of comments and strings, and keywords. */

const words = (list) => new Set(list.split(" "));

const DOUBLE = String.raw`"(?:[^"\\\n]|\\[^])*"?`;
const SINGLE = String.raw`'(?:[^'\\\n]|\\[^])*'?`;
const TICKED = "`(?:[^`\\\\]|\\\\[^])*`?";
const THREE = `"""[^]*?(?:"""|$(?![^]))|'''[^]*?(?:'''|$(?![^]))`;
const SLASHES = String.raw`\/\/.*|\/\*[^]*?(?:\*\/|$(?![^]))`;
const HASH = "#.*";
const NUMBER = String.raw`\b\d[\w.]*`;
const WORD = String.raw`[\p{L}_$][\p{L}\p{N}_$]*`;

const JS_WORDS =
  "async await break case catch class const continue default delete do else export extends finally for from function get if import in instanceof let new of return set static super switch this throw try typeof var void while with yield";
const TS_WORDS = `${JS_WORDS} abstract as declare enum implements interface keyof namespace never private protected public readonly satisfies type unknown any string number boolean`;
const C_WORDS =
  "auto bool break case catch char class const constexpr continue default delete do double else enum extern float for goto if inline int long namespace new noexcept nullptr operator override private protected public return short signed sizeof static struct switch template this throw try typedef typename union unsigned using virtual void volatile while";
const LITERALS = "true false null undefined NaN None True False nil";

/**
 * `comment`, `text`: patterns. `words`: keywords. `first`: kinds that are matched before all others. A pattern that can
 * start anywhere and need not end has a length limit: otherwise matching would take quadratic time.
 */
const ROWS = {
  bash: {
    comment: String.raw`(?<![^\s;(])#.*`,
    text: String.raw`"(?:[^"\\]|\\[^])*"?|'[^']*'?`,
    first: { name: String.raw`\$(?:\w+|\{[^}\n]{0,200}\}|[@#?*!$-])`, option: String.raw`(?<=\s)--?[A-Za-z][\w-]*` },
    words: words(
      "if then else elif fi for while until do done case esac in function select time return exit break continue export local declare readonly unset shift set source alias trap exec eval cd echo printf read test sudo",
    ),
  },
  python: {
    comment: HASH,
    text: `(?:\\b[rbfuRBFU]{1,2})?(?:${THREE}|${DOUBLE}|${SINGLE})`,
    first: { name: String.raw`(?<![^\s])@[\w.]+` },
    words: words(
      "and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield self",
    ),
  },
  js: { comment: SLASHES, text: `${DOUBLE}|${SINGLE}|${TICKED}`, words: words(JS_WORDS) },
  ts: { comment: SLASHES, text: `${DOUBLE}|${SINGLE}|${TICKED}`, words: words(TS_WORDS) },
  json: { comment: SLASHES, text: DOUBLE, keyed: true },
  html: {
    comment: "<!--[^]*?(?:-->|$(?![^]))",
    text: `(?<==)"[^"]*"?|(?<==)'[^']*'?`,
    first: { word: String.raw`<[\/!?]?[A-Za-z][\w:.-]*|[\/?]?>`, number: String.raw`&#?\w{1,30};` },
    attributes: true,
  },
  css: {
    comment: String.raw`\/\*[^]*?(?:\*\/|$(?![^]))`,
    text: `${DOUBLE}|${SINGLE}`,
    first: { word: String.raw`@[\w-]+|!important`, number: String.raw`#[\da-fA-F]{3,8}\b`, name: String.raw`--[\w-]+` },
    keyed: true,
    word: String.raw`[\p{L}_][\p{L}\p{N}_-]*`,
  },
  sql: {
    comment: String.raw`--.*|\/\*[^]*?(?:\*\/|$(?![^]))`,
    text: String.raw`'(?:[^']|'')*'?|"[^"\n]*"?`,
    folded: true,
    words: words(
      "add all alter and as asc begin between by case check column commit constraint create cross database default delete desc distinct drop else end exists foreign from full group having if in index inner insert intersect into is join key left like limit not null offset on or order outer primary references returning right rollback select set table then transaction union unique update using values view when where with int integer text varchar char boolean date timestamp numeric real blob serial bigint",
    ),
  },
  yaml: {
    comment: String.raw`(?<![^\s])#.*`,
    text: `${DOUBLE}|'(?:[^'\\n]|'')*'?`,
    first: { name: String.raw`(?<![^\s])[&*!][\w!-]+` },
    keyed: true,
    word: String.raw`[\p{L}_][\p{L}\p{N}_.\/-]*`,
    words: words("yes no on off"),
  },
  toml: {
    comment: HASH,
    text: `${THREE}|${DOUBLE}|'[^'\\n]*'?`,
    first: { word: String.raw`(?<![^\n])\[{1,2}[^\]\n]*\]{1,2}` },
    assigned: true,
    word: String.raw`[\p{L}_][\p{L}\p{N}_.-]*`,
  },
  rust: {
    comment: SLASHES,
    text: String.raw`"(?:[^"\\]|\\[^])*"?|'(?:[^'\\\n]|\\[^'\n]{1,9})'`,
    first: { name: String.raw`#!?\[[^\]\n]{0,200}\]|'[a-z_]\w*|[a-z_]\w{0,60}!(?=[(\[{])` },
    words: words(
      "as async await break const continue crate dyn else enum extern fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait type unsafe use where while bool char f32 f64 i8 i16 i32 i64 isize str u8 u16 u32 u64 usize String Vec Option Result",
    ),
  },
  go: {
    comment: SLASHES,
    text: `${DOUBLE}|${SINGLE}|\`[^\`]*\`?`,
    words: words(
      "break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var bool byte error float64 int int64 rune string uint any make new append len",
    ),
  },
  c: {
    comment: SLASHES,
    text: `${DOUBLE}|${SINGLE}`,
    first: { name: String.raw`(?<![^\n])[ \t]*#[ \t]*\w+` },
    words: words(C_WORDS),
  },
  java: {
    comment: SLASHES,
    text: `${THREE}|${DOUBLE}|${SINGLE}`,
    first: { name: String.raw`@[A-Z]\w*` },
    words: words(
      "abstract assert boolean break byte case catch char class const continue default do double else enum extends final finally float for fun if implements import instanceof int interface long native new override package private protected public record return sealed short static super switch synchronized this throw throws transient try val var void volatile when while",
    ),
  },
  diff: {
    comment: String.raw`(?<![^\n])(?:diff|index|---|\+\+\+|@@).*`,
    text: "",
    first: { added: String.raw`(?<![^\n])\+.*`, removed: String.raw`(?<![^\n])-.*` },
  },
  md: {
    comment: String.raw`(?<![^\n])>.*|<!--[^]*?(?:-->|$(?![^]))`,
    text: "`[^`\\n]*`?",
    first: {
      word: String.raw`(?<![^\n])#{1,6} .*`,
      name: String.raw`\*\*[^*\n]+\*\*|(?<![^\n])(?:[-*+]|\d{1,9}[.)])(?= )`,
    },
    word: "",
  },
  docker: {
    comment: String.raw`(?<![^\n])#.*`,
    text: `${DOUBLE}|${SINGLE}`,
    first: { name: String.raw`\$(?:\w+|\{[^}\n]{0,200}\})`, option: String.raw`(?<=\s)--?[A-Za-z][\w-]*` },
    words: words(
      "FROM RUN CMD LABEL EXPOSE ENV ADD COPY ENTRYPOINT VOLUME USER WORKDIR ARG ONBUILD STOPSIGNAL HEALTHCHECK SHELL AS",
    ),
  },
  make: {
    comment: HASH,
    text: `${DOUBLE}|${SINGLE}`,
    first: {
      name: String.raw`\$[({][^)}\n]{0,200}[)}]|\$[@<^*?]`,
      word: String.raw`(?<![^\n])[\w./%-]{1,80}(?=[ \t]*:)`,
    },
    words: words("ifeq ifneq ifdef ifndef else endif include define endef export override"),
  },
};

const ALIASES = {
  bash: "sh shell zsh console shell-session terminal ksh fish",
  python: "py python3 py3 pyi pycon",
  js: "javascript jsx mjs cjs node",
  ts: "typescript tsx",
  json: "jsonc json5 jsonl ndjson",
  html: "xml svg htm xhtml vue svelte",
  css: "scss less",
  sql: "sqlite postgres postgresql mysql psql",
  yaml: "yml",
  toml: "ini cfg conf properties",
  rust: "rs",
  go: "golang",
  c: "cpp c++ cc h hpp cs csharp c# objc swift php",
  java: "kotlin kt scala groovy dart",
  diff: "patch",
  md: "markdown mdx",
  docker: "dockerfile containerfile",
  make: "makefile mk",
};

const NAMES = new Map(
  Object.entries(ALIASES).flatMap(([name, others]) => [name, ...others.split(" ")].map((one) => [one, name])),
);
const built = new Map();

/** What colours a language, by any of its names: `{pattern, kind(match, text)}`; null where it has no colours. */
export function languageOf(name) {
  const known = NAMES.get(name.toLowerCase());
  if (!known) return null;
  if (!built.has(known)) built.set(known, build(ROWS[known]));
  return built.get(known);
}

function build({ comment, text, first = {}, word = WORD, ...row }) {
  const named = Object.entries({
    ...first,
    comment,
    text,
    number: [first.number, NUMBER].filter(Boolean).join("|"),
    plain: word,
  });
  const groups = named.filter(([, pattern]) => pattern).map(([kind, pattern]) => `(?<${kind}>${pattern})`);
  return { pattern: new RegExp(groups.join("|"), "gu"), kind: (match, whole) => kindOf(match, whole, row) };
}

function kindOf({ 0: found, index, groups }, whole, row) {
  const [kind] = Object.entries(groups).find(([, given]) => given !== undefined);
  const next = whole.slice(index + found.length, index + found.length + 3);
  if (kind === "text" && row.keyed && /^ ?:/.test(next)) return "name";
  if (kind !== "plain") return kind;
  if (row.words?.has(row.folded ? found.toLowerCase() : found)) return "word";
  if (LITERAL.has(found)) return "number";
  if ((row.keyed && /^ ?:/.test(next)) || (row.assigned && /^ ?=/.test(next)) || (row.attributes && next[0] === "="))
    return "name";
  return next[0] === "(" ? "call" : null;
}

const LITERAL = words(LITERALS);
