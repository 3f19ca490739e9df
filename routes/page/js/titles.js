/** A call in one line, for cards, approvals and titles of tabs. */

const TITLES = {
  bash: ({ command }) => command,
  python: ({ code }) => code,
  read_file: ({ path }) => path,
  write_file: ({ path }) => path,
  edit_file: ({ path }) => path,
};

/** `titleOf("bash", {command: "make test\n..."})` is `make test`. */
export function titleOf(name, given = {}) {
  const words = TITLES[name]?.(given) ?? JSON.stringify(given);
  return String(words ?? "").split("\n", 1)[0].slice(0, 200);
}
