/**
 * The names of languages as models write them on code blocks, and the grammars of highlight.js that they need: the
 * first is the language's, the others are for what it embeds.
 */

const NAMES = {
  bash: "sh zsh ksh fish shellscript",
  "shell bash": "console shell-session shellsession terminal session",
  python: "py python3 py3 pyi ipython sage",
  "python-repl python": "pycon",
  "javascript xml css": "js jsx mjs cjs node es6",
  "typescript xml css": "ts tsx mts cts",
  json: "jsonc json5 jsonl ndjson geojson webmanifest",
  "xml css javascript": "html svg htm xhtml vue svelte rss xsl plist astro",
  css: "postcss",
  scss: "sass",
  less: "",
  sql: "sqlite mysql mariadb tsql plsql",
  pgsql: "postgres postgresql psql",
  yaml: "yml compose",
  ini: "toml cfg conf config editorconfig gitconfig",
  properties: "dotenv env",
  rust: "rs",
  go: "golang gomod",
  c: "h",
  cpp: "c++ cc cxx hpp hh ino arduino cuda",
  csharp: "cs c#",
  java: "jsp",
  kotlin: "kt kts",
  swift: "",
  php: "php3 php5 php8",
  ruby: "rb rake gemfile",
  perl: "pl pm",
  lua: "luau",
  r: "rscript",
  scala: "sbt",
  dart: "flutter",
  elixir: "ex exs",
  erlang: "erl",
  haskell: "hs",
  clojure: "clj cljs edn",
  lisp: "elisp scheme racket",
  powershell: "ps1 pwsh ps",
  dos: "bat cmd batch",
  dockerfile: "docker containerfile",
  "makefile bash": "make mk",
  cmake: "",
  nginx: "nginxconf",
  apache: "htaccess apacheconf",
  diff: "patch udiff",
  "markdown xml": "md mdx mkd rmd",
  graphql: "gql",
  protobuf: "proto",
  latex: "tex",
  matlab: "octave",
  julia: "jl",
  groovy: "jenkinsfile",
  gradle: "",
  "http json xml": "https",
  vim: "viml vimscript",
  objectivec: "objc obj-c objective-c mm",
  x86asm: "asm assembly nasm",
  fsharp: "fs f#",
  ocaml: "ml",
  awk: "gawk",
  vbnet: "vb vba",
  nix: "",
  wasm: "wat",
  "handlebars xml": "hbs mustache",
  "django xml": "jinja jinja2 twig",
  "erb ruby xml": "rhtml",
  stylus: "styl",
  verilog: "v sv systemverilog",
  fortran: "f90 f95",
};

const BY_NAME = new Map(
  Object.entries(NAMES).flatMap(([grammars, others]) => {
    const files = grammars.split(" ");
    return [files[0], ...others.split(" ").filter(Boolean)].map((name) => [name, files]);
  }),
);

/** `grammarsOf("html")` is `["xml", "css", "javascript"]`; null for a language that has no colours. */
export function grammarsOf(name) {
  return BY_NAME.get(name.toLowerCase()) ?? null;
}
