/** Exports a conversation as a file: Markdown, or the complete session as JSON. */

import { get } from "../feed/api.js";
import { fenced } from "../chat/attachments.js";
import { saveText } from "../dom/download.js";
import { t } from "../dom/more_texts.js";

const FENCED = "fence_tool_tag";

const FORMATS = {
  md: ["text/markdown", (session) => markdown(session)],
  json: ["application/json", (session) => JSON.stringify(session, null, 2)],
};

/** Saves the session as `md` or `json`. Raises errors of the request. */
export async function save(id, form) {
  const [kind, written] = FORMATS[form];
  const path = `/sessions/${encodeURIComponent(id)}`;
  const [session, { documents }] = await Promise.all([get(path), get(`${path}/documents`)]);
  session.documents = await Promise.all(documents.map((one) => get(`/documents/${encodeURIComponent(one.id)}`)));
  saveText(written(session), session.title || session.id, form, kind);
}

/** The whole session as Markdown. Calls and results are in fences longer than any inside them. */
function markdown(session) {
  const parts = [`# ${session.title || t("export.untitled")}`];
  for (const message of session.messages) parts.push(...(SECTIONS[message.role]?.(message) ?? []));
  for (const { title, text } of session.documents) parts.push(`# ${t("export.document", { title })}`, text);
  return `${parts.filter(Boolean).join("\n\n")}\n`;
}

const SECTIONS = {
  user: ({ text, attachments = [] }) => [
    `## ${t("export.you")}`,
    text,
    ...attachments.map(({ name, media_type }) => `(${name || media_type})`),
  ],
  assistant: ({ text, shown = text, calls = [] }) => [
    `## ${t("export.assistant")}`,
    shown,
    ...calls.filter((one) => !isInText(one, shown)).map(call),
  ],
  tool: ({ text, name }) => [`**${t("export.result", { name: name ?? "tool" })}**`, fenced(text)],
};

/** A call that the model wrote as a block of code is text of its message. */
function isInText({ name, dialect }, text) {
  return dialect === FENCED && text.includes(`\`\`\`${name}\n`);
}

function call({ name, arguments: given }) {
  return `**${name}**\n\n${fenced(typeof given === "string" ? given : JSON.stringify(given, null, 2), "json")}`;
}
