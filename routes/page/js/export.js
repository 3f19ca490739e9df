/** A conversation as a file: Markdown to read, JSON with all that the server has of it. */

import { get } from "./api.js";
import { h } from "./dom.js";

const read = (id) => get(`/sessions/${encodeURIComponent(id)}`);

/** What a menu offers: label, and what saves the session of that id. Raises what the request raises. */
export const EXPORTS = [
  [
    "Export as Markdown",
    async (id) => read(id).then((session) => save(session, "md", "text/markdown", markdown(session))),
  ],
  [
    "Export as JSON",
    async (id) =>
      read(id).then((session) => save(session, "json", "application/json", JSON.stringify(session, null, 2))),
  ],
];

function save(session, ending, kind, text) {
  const url = URL.createObjectURL(new Blob([text], { type: `${kind};charset=utf-8` }));
  const link = h("a", { href: url, download: `${fileName(session.title ?? session.id)}.${ending}` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser reads it after the click
}

/** Letters and digits of any language, and no name that a system would take for something else. */
function fileName(title) {
  return (
    title
      .normalize("NFC")
      .replace(/[^\p{L}\p{M}\p{N}]+/gu, "-")
      .replace(/^-+|-+$/g, "")
      .slice(0, 60) || "conversation"
  );
}

/** The whole session as Markdown. What tools were told and answered stands in fences longer than any in it. */
export function markdown(session) {
  const parts = [`# ${session.title || "Conversation"}`];
  for (const message of session.messages) parts.push(...(SAID[message.role]?.(message) ?? []));
  return `${parts.filter(Boolean).join("\n\n")}\n`;
}

const SAID = {
  user: ({ text, attachments = [] }) => [
    "## You",
    text,
    ...attachments.map(({ name, media_type }) => `(${name || media_type})`),
  ],
  assistant: ({ text, shown = text, calls = [] }) => ["## Assistant", shown, ...calls.map(call)],
  tool: ({ text, name }) => [`**${name ?? "Result"}** answered:`, fenced(text)],
};

function call({ name, arguments: given }) {
  return `**${name}**\n\n${fenced(typeof given === "string" ? given : JSON.stringify(given, null, 2), "json")}`;
}

/** A fence that nothing in the text can close. */
export function fenced(text, language = "") {
  const longest = (text.match(/`+/g) ?? []).reduce((most, ticks) => Math.max(most, ticks.length), 2);
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${text}${text.endsWith("\n") ? "" : "\n"}${fence}`;
}
