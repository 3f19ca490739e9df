/** What can be done with a code block of an answer: run it by way of a message, or save it to the workspace. */

import { announce, button, h, icon, iconButton } from "../dom/elements.js";
import { t } from "../dom/texts.js";

const RUNNABLE = /^(?:bash|sh|shell|zsh|console|python3?|py)$/i;
const WORKS = { class: "quiet code-works" }; // shown in answers (css/messages.css)

/** The page of the conversation that an element stands in; null elsewhere, and where it is only read. */
export function pageOf(element) {
  const asks = new CustomEvent("page", { bubbles: true, detail: { page: null } });
  element.dispatchEvent(asks);
  return asks.detail.page;
}

/** The buttons of a closed `CodeView`. */
export function codeButtons(view) {
  const run = () => pageOf(view.element)?.composer.insert(`${t("code.run.message")}\n\n${fenced(view)}\n`);
  const save = iconButton(t("code.save"), "folder", () => saveCode(view), WORKS);
  if (!RUNNABLE.test(view.language)) return [save];
  return [button([icon("play"), t("code.run")], run, { ...WORKS, title: t("code.run.hint") }), save];
}

/** The model runs it with its tools, so that each call is decided on as any other. */
function fenced({ text, language }) {
  const marks = text.match(/^ {0,3}`{3,}/gm) ?? [];
  const fence = "`".repeat(Math.max(3, ...marks.map((mark) => mark.trim().length + 1)));
  return `${fence}${language}\n${text}\n${fence}`;
}

async function saveCode({ element, text, language }) {
  const note = element.querySelector(".code-note") ?? h("p", { class: "code-note faint", role: "status" });
  element.append(note);
  const say = (words) => (note.textContent = words);
  try {
    const { saveText } = await pageOf(element).workspaceActions();
    const path = await saveText(text, language, say);
    say(path ? t("code.saved", { path }) : "");
  } catch (error) {
    announce(say(error.message), { urgent: true });
  }
}
