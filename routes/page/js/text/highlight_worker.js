/** highlight.js beside the page: answers a text with its tokens, the grammar fetched when it is first needed. */

const VENDOR = "../../vendor/highlight/";

// The colour of a scope, or else of what its name begins with: `title.function` is a `title`.
const KINDS = {
  keyword: "word",
  "meta.keyword": "word",
  "variable.language": "word",
  name: "word",
  section: "word",
  "selector-tag": "word",
  string: "text",
  regexp: "text",
  char: "text",
  quote: "comment",
  code: "text",
  comment: "comment",
  doctag: "comment",
  number: "number",
  literal: "number",
  "variable.constant": "number",
  formula: "number",
  link: "number",
  symbol: "number",
  bullet: "name",
  attr: "name",
  attribute: "name",
  property: "name",
  variable: "name",
  "template-variable": "name",
  meta: "name",
  strong: "name",
  "selector-class": "name",
  "selector-id": "name",
  "selector-attr": "name",
  "selector-pseudo": "name",
  type: "call",
  built_in: "call",
  title: "call",
  addition: "added",
  deletion: "removed",
  subst: "", // code in a string is no string
};
const NAMES = [...new Set(["", ...Object.values(KINDS)])];

let core = null;
const grammars = new Map();

/** Takes in what highlight.js finds: each piece of text with the innermost scope that has a colour. */
class Tokens {
  found = []; // pairs of a length and a place in NAMES
  #open = [0];

  addText(text) {
    const kind = this.#open.at(-1);
    if (!text) return;
    if (this.found.at(-1) === kind) this.found[this.found.length - 2] += text.length;
    else this.found.push(text.length, kind);
  }

  openNode(scope) {
    this.#open.push(kindOf(scope) ?? this.#open.at(-1));
  }

  closeNode() {
    if (this.#open.length > 1) this.#open.pop();
  }

  startScope = this.openNode;
  endScope = this.closeNode;

  __addSublanguage({ found }) {
    const around = this.#open.at(-1);
    for (let at = 0; at < found.length; at += 2) this.found.push(found[at], found[at + 1] || around);
  }

  finalize() {}

  toHTML() {
    return "";
  }
}

function kindOf(scope) {
  for (let name = scope; name; name = name.slice(0, Math.max(0, name.lastIndexOf("."))))
    if (name in KINDS) return NAMES.indexOf(KINDS[name]);
  return undefined;
}

const load = async (file) => (await import(new URL(VENDOR + file, import.meta.url).href)).default;

async function loadCore() {
  const hljs = await load("core.min.js");
  hljs.configure({ __emitter: Tokens });
  return hljs;
}

async function register(name) {
  const [hljs, grammar] = await Promise.all([(core ??= loadCore()), load(`${name}.min.js`)]);
  hljs.registerLanguage(name, name === "bash" ? withQuotedHeredocs(grammar) : grammar);
}

/** highlight.js knows `<<EOF`, and takes what follows `<<'EOF'` for code, whose apostrophes begin strings. */
function withQuotedHeredocs(grammar) {
  return (hljs) => {
    const bash = grammar(hljs);
    const text = hljs.END_SAME_AS_BEGIN({ begin: /["'](\w+)["']/, end: /^\t*(\w+)$/, className: "string" });
    bash.contains.unshift({ begin: /<<-?[ \t]*(?=(["'])\w+\1)/, starts: { contains: [text] } });
    return bash;
  };
}

async function tokensOf(id, text, names) {
  for (const name of names) if (!grammars.has(name)) grammars.set(name, register(name));
  await Promise.all(names.map((name) => grammars.get(name)));
  const hljs = await core;
  postMessage({ id, begun: true });
  const { found } = hljs.highlight(text, { language: names[0], ignoreIllegals: true })._emitter;
  return { kinds: NAMES, tokens: Uint32Array.from(found) };
}

addEventListener("message", async ({ data: { id, text, grammars: names } }) => {
  postMessage({ id, found: await tokensOf(id, text, names) });
});
// What cannot be loaded, or breaks, ends this worker.
addEventListener("unhandledrejection", ({ reason }) => {
  throw reason;
});
