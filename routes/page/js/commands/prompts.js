/** The prompts that `/` offers: one's own, and those of connected MCP servers; and asking for what they leave open. */

import { get, post } from "../feed/api.js";
import { announce, button, dialog, dialogButtons, h } from "../dom/elements.js";
import { field, Outcome, submitting } from "../dom/forms.js";
import { t } from "../dom/more_texts.js";
import { escapeLine } from "../text/exact_text.js";

const FRESH_MS = 30_000;
const MOST_SERVERS = 5; // whose prompts are listed
const BLANK = /\{\{\s*([\p{L}\p{N}_ -]{1,64}?)\s*\}\}/gu;

let known = { at: -Infinity, rows: [] };

/** Forgets what was fetched: the library has changed. */
export const forgetPrompts = () => (known = { at: -Infinity, rows: [] });

/** Rows as those of the commands. Servers that do not answer have none. */
export async function promptRows(page) {
  if (Date.now() - known.at < FRESH_MS) return known.rows;
  const servers = (page.store.get("mcp") ?? []).filter(({ state }) => state === "ready").slice(0, MOST_SERVERS);
  const lists = await Promise.allSettled([ownRows(), ...servers.map(({ name }) => serverRows(name))]);
  known = { at: Date.now(), rows: lists.flatMap(({ value }) => value ?? []) };
  return known.rows;
}

async function ownRows() {
  const { prompts } = await get("/prompts");
  return prompts.map(({ name, about, text }) => ({
    name,
    about: about || text.slice(0, 100),
    takesWords: true,
    run: (page, rest) => usePrompt(page, name, text, rest),
  }));
}

async function serverRows(server) {
  const path = `/mcp/servers/${encodeURIComponent(server)}/prompts`;
  const { prompts } = await get(path);
  return prompts.map((prompt) => ({
    name: `${escapeLine(server)}:${escapeLine(prompt.name)}`,
    about: escapeLine(prompt.description || prompt.title || ""),
    run: (page) => useServerPrompt(page, path, prompt),
  }));
}

/** Adds a stored prompt to the message box, and `words` behind it; its blanks are asked for. */
export async function usePrompt(page, name, text, words = "") {
  const blanks = [...new Set([...text.matchAll(BLANK)].map(([, blank]) => blank))];
  const wanted = blanks.map((blank) => ({ name: blank, required: false }));
  const given = blanks.length ? await ask(`/${name}`, wanted) : {};
  const filled = given ? text.replace(BLANK, (_, blank) => given[blank] ?? "") : "";
  page.composer.insert([filled, words].filter(Boolean).join("\n\n"));
}

async function useServerPrompt(page, path, { name, arguments: wanted }) {
  const given = wanted.length ? await ask(escapeLine(name), wanted) : {};
  if (!given) return page.composer.text.focus();
  const filled = Object.fromEntries(Object.entries(given).filter(([, value]) => value));
  const { text } = await post(`${path}/${encodeURIComponent(name)}`, { arguments: filled });
  page.composer.insert(text);
  announce(t("prompts.inserted"));
}

/** The values by their names; undefined if the dialog was dismissed. */
function ask(title, wanted) {
  return dialog(title, (close) => {
    const inputs = wanted.map((one) => [one, h("textarea", { rows: 1, required: one.required, dir: "auto" })]);
    const use = h("button", { type: "submit", class: "primary" }, t("prompts.use"));
    const outcome = new Outcome();
    const fields = inputs.map(([one, input]) =>
      field(escapeLine(one.name), input, one.description && escapeLine(one.description)),
    );
    const values = () => Object.fromEntries(inputs.map(([one, input]) => [one.name, input.value]));
    const onsubmit = submitting(use, outcome, () => close(values()));
    const cancel = button(t("commands.cancel"), () => close());
    return h("form", { class: "form", onsubmit }, fields, outcome.element, dialogButtons(cancel, use));
  });
}
