/** AG-UI's HttpAgent and the chat of the AI SDK: their connection is lost, and they return by the means of their format.

The job is the argument. Writes a line when the first characters are there, one when the connection is lost, and, after a
line has come, what it has in the end. With `loaded` the page has been loaded again: it has what the person wrote, or all if it has `kept` that.
*/

import { createInterface } from "node:readline";

import { HttpAgent } from "@ag-ui/client";
import { AbstractChat, DefaultChatTransport } from "ai";

import { Kept } from "../ui_client.mjs";

const job = JSON.parse(process.argv[2]);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const write = (row) => process.stdout.write(`${JSON.stringify(row)}\n`);
const headers = { Authorization: `Bearer ${job.key}` };
let begun = false;
process.on("unhandledRejection", () => {}); // of the reader that HttpAgent closes once more; a browser goes on

function begin(text) {
  if (!begun && text.length >= (job.characters ?? 1)) {
    write({ begun: true });
    begun = true;
  }
}

async function agui() {
  const events = [];
  const made = (messages) => {
    const agent = new HttpAgent({ url: `${job.url}/ag-ui`, threadId: "t1", initialMessages: messages, headers });
    agent.subscribe({
      onTextMessageContentEvent: ({ event, textMessageBuffer }) => begin(textMessageBuffer + event.delta),
      onEvent: ({ event }) => void (begun && events.push(event.type)),
    });
    return agent;
  };
  const run = (agent) => agent.runAgent({ runId: "r1", forwardedProps: { model: job.model } });
  const asked = [{ id: "u1", role: "user", content: job.prompt }];
  let agent = made(asked);
  const error = await run(agent).then(
    () => null,
    (raised) => String(raised),
  );
  write({ lost: error });
  await lines.next();
  if (job.loaded) agent = made(job.loaded === "kept" ? agent.messages : asked);
  events.length = 0;
  const failed = await run(agent).then(
    () => null,
    (raised) => String(raised),
  );
  const texts = agent.messages.filter(({ role }) => role === "assistant").map(({ content }) => content ?? "");
  const ids = agent.messages.map(({ id }) => id);
  write({ texts, ids, failed, end: events.at(-1), first: events[0] });
}

async function ui() {
  const ends = [];
  const asked = [{ id: "u1", role: "user", parts: [{ type: "text", text: job.prompt }] }];
  const made = (messages) => {
    const transport = new DefaultChatTransport({ api: `${job.url}/ui-message-stream`, headers, body: { model: job.model } });
    const state = new Kept();
    state.messages = messages;
    return new Chat({ id: "c1", transport, state, onFinish: (end) => ends.push(end), onError: () => {} });
  };
  let chat = made([]);
  const sent = chat.sendMessage(asked[0]);
  const words = setInterval(() => {
    const texts = chat.messages.flatMap(({ role, parts }) => (role === "assistant" ? parts : []));
    begin(texts.map(({ type, text }) => (type === "text" ? text : "")).join(""));
  }, 10);
  await sent;
  clearInterval(words);
  write({ lost: chat.error ? String(chat.error) : null });
  await lines.next();
  if (job.loaded) chat = made(job.loaded === "kept" ? structuredClone(chat.messages) : asked);
  await chat.resumeStream();
  const answers = chat.messages.filter(({ role }) => role === "assistant");
  const texts = answers.map(({ parts }) => parts.flatMap(({ type, text }) => (type === "text" ? [text] : [])).join(""));
  const failed = chat.status === "error" ? String(chat.error) : null;
  write({ texts, ids: chat.messages.map(({ id }) => id), failed, end: ends.at(-1)?.finishReason ?? null });
}

class Chat extends AbstractChat {}

await { agui, ui }[job.client]();
process.exit();
