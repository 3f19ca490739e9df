/** ai (the AI SDK) as a page uses it: the chat of `useChat` without React, over the UI message stream. */

import {
  AbstractChat,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from "ai";

import { declared, main } from "./jobs.mjs";

/** What @ai-sdk/react keeps in React's state. */
export class Kept {
  status = "ready";
  error = undefined;
  messages = [];

  pushMessage = (message) => this.messages.push(message);
  popMessage = () => this.messages.pop();
  replaceMessage = (index, message) => {
    this.messages[index] = message;
  };
  snapshot = (thing) => structuredClone(thing);
}

class Chat extends AbstractChat {
  constructor(options) {
    super({ ...options, state: new Kept() });
  }
}

async function ui(job, seen) {
  const ends = [];
  const chat = new Chat({
    transport: new DefaultChatTransport({
      api: `${job.url}/ui-message-stream`,
      headers: { Authorization: `Bearer ${job.key}` },
      body: { model: job.model, tools: declared(job), ...job.parameters },
    }),
    sendAutomaticallyWhen: (state) =>
      lastAssistantMessageIsCompleteWithToolCalls(state) || lastAssistantMessageIsCompleteWithApprovalResponses(state),
    onToolCall({ toolCall: { toolName: tool, toolCallId, input } }) {
      chat.addToolOutput({ tool, toolCallId, output: seen.run(tool, input) });
    },
    onFinish: (end) => ends.push(end),
  });
  for (const prompt of job.prompts) {
    const files = job.picture ? [{ type: "file", mediaType: "image/png", url: job.picture }] : [];
    const sent = chat.sendMessage({ text: prompt, files });
    if (job.leave) {
      await words(chat);
      seen.left = Date.now() / 1000;
      await chat.stop();
    }
    await sent;
    await rest(chat);
    await decide(job, chat, ends);
    if (chat.error) throw chat.error;
  }
  for (const message of chat.messages.filter(({ role }) => role === "assistant")) {
    for (const part of message.parts) {
      if (part.type === "text") seen.add(part.text);
      if (part.type === "reasoning") seen.add(null, part.text);
    }
  }
  seen.finish = ends.at(-1)?.finishReason ?? null;
}

/** Answer the question about a call, if there is one; the chat sends the answer itself. */
async function decide(job, chat, ends) {
  const asked = chat.messages.flatMap(({ parts }) => parts).filter(({ state }) => state === "approval-requested");
  for (const { approval } of asked) {
    const before = ends.length;
    await chat.addToolApprovalResponse({ id: approval.id, approved: job.verdict });
    while (ends.length === before) await turn();
  }
}

/** Until the first words of an answer are there. */
async function words(chat) {
  const come = ({ role, parts }) => role === "assistant" && parts.some((part) => part.type === "text" && part.text);
  while (!chat.messages.some(come)) await turn();
}

/** Until nothing is under way: results of tools are sent by the chat itself. */
async function rest(chat) {
  do await turn();
  while (chat.status === "submitted" || chat.status === "streaming");
}

const turn = () => new Promise((resolve) => setTimeout(resolve, 20));

if (process.argv[1]?.endsWith("ui_client.mjs")) await main({ ui });
