/** Maps a file name to its language by the extension. */

const LANGUAGES = {
  bash: "sh bash zsh",
  python: "py pyi",
  js: "js mjs cjs jsx",
  ts: "ts tsx",
  json: "json jsonl",
  html: "html htm xhtml",
  xml: "xml",
  svg: "svg",
  mermaid: "mmd mermaid",
  css: "css",
  sql: "sql",
  yaml: "yaml yml",
  toml: "toml ini cfg",
  rust: "rs",
  go: "go",
  c: "c h cpp cc hpp",
  java: "java kt",
  diff: "diff patch",
  markdown: "md markdown",
};
const BY_END = new Map(Object.entries(LANGUAGES).flatMap(([name, ends]) => ends.split(" ").map((end) => [end, name])));
const BY_NAME = new Map([
  ["dockerfile", "docker"],
  ["makefile", "make"],
]);

/** `fileLanguage("src/app.py")` is `python`; "" if unknown. */
export function fileLanguage(path) {
  const parts = String(path ?? "").split("/");
  const name = parts.at(-1).toLowerCase();
  return BY_NAME.get(name) ?? BY_END.get(name.split(".").at(-1)) ?? "";
}

const ENDINGS = new Map(Object.entries({ ...LANGUAGES, plain: "txt", javascript: "js", typescript: "ts" }));

/** The ending of a file in this language, or of this kind of document. */
export const endingOf = (kind) => ENDINGS.get(kind)?.split(" ")[0] ?? (/^[a-z0-9]{1,10}$/.test(kind) ? kind : "txt");
