/** openai (JavaScript): chat completions and Responses; whole, as raw streams, and with the package's helpers. */

import OpenAI from "openai";

import { declared, leaving, main } from "./jobs.mjs";

const clientOf = (job) => new OpenAI({ baseURL: `${job.url}/v1`, apiKey: job.key, maxRetries: 0 });
const chatTools = (job) =>
  Object.entries(declared(job)).map(([name, tool]) => ({ type: "function", function: { name, ...tool } }));
const responseTools = (job) =>
  Object.entries(declared(job)).map(([name, tool]) => ({ type: "function", name, strict: false, ...tool }));

function content(job, prompt, type, picture) {
  return job.picture ? [{ type, text: prompt }, picture(job.picture)] : prompt;
}

async function conversation(job, seen, oneRound) {
  const client = clientOf(job);
  const messages = [];
  for (const prompt of job.prompts) {
    const parts = content(job, prompt, "text", (url) => ({ type: "image_url", image_url: { url } }));
    messages.push({ role: "user", content: parts });
    for (;;) {
      const tools = job.tools.length ? { tools: chatTools(job) } : {};
      const message = await oneRound(client, { model: job.model, messages, ...tools, ...job.parameters });
      messages.push(message);
      for (const call of message.tool_calls ?? []) {
        const result = seen.run(call.function.name, call.function.arguments);
        messages.push({ role: "tool", tool_call_id: call.id, content: result });
      }
      if (!message.tool_calls?.length) break;
    }
  }
}

/** `thought` is for streams: the package's helpers join no fields that they do not know. */
function noted(seen, completion, thought) {
  const [{ message, finish_reason: finish }] = completion.choices;
  seen.add(message.content, thought ?? message.reasoning_content);
  seen.finish = finish;
  seen.usage = completion.usage ?? null;
  return { role: "assistant", content: message.content, tool_calls: message.tool_calls };
}

const chat = (job, seen) =>
  conversation(job, seen, async (client, body) =>
    noted(seen, await client.chat.completions.create(body, { signal: leaving(job, seen) })),
  );

const chatStream = (job, seen) =>
  conversation(job, seen, async (client, body) => {
    const more = { stream: true, stream_options: { include_usage: true } };
    const stream = await client.chat.completions.create({ ...body, ...more });
    const message = { role: "assistant", content: "" };
    let thought = "";
    for await (const chunk of stream) {
      if (chunk.usage) seen.usage = chunk.usage;
      for (const { delta, finish_reason: finish } of chunk.choices) {
        if (finish) seen.finish = finish;
        message.content += delta.content ?? "";
        thought += delta.reasoning_content ?? "";
        for (const part of delta.tool_calls ?? []) collect(message, part);
      }
      if (job.leave && message.content) {
        stream.controller.abort();
        seen.leave();
      }
    }
    seen.add(message.content, thought);
    return message;
  });

function collect(message, part) {
  message.tool_calls ??= [];
  const { name, arguments: given } = part.function;
  if (part.id) message.tool_calls[part.index] = { id: part.id, type: part.type, function: { name, arguments: given ?? "" } };
  else message.tool_calls[part.index].function.arguments += given;
}

const chatHelper = (job, seen) =>
  conversation(job, seen, async (client, body) => {
    const stream = client.chat.completions.stream({ ...body, stream_options: { include_usage: true } });
    let thought = "";
    for await (const chunk of stream) {
      thought += chunk.choices[0]?.delta.reasoning_content ?? "";
      if (job.leave && chunk.choices[0]?.delta.content) {
        stream.abort();
        seen.leave();
      }
    }
    return noted(seen, await stream.finalChatCompletion(), thought);
  });

/** The package's own loop: it runs the tools. */
async function chatRunner(job, seen) {
  const tools = Object.entries(declared(job)).map(([name, tool]) => ({
    type: "function",
    function: { name, ...tool, parse: JSON.parse, function: (given) => seen.run(name, given) },
  }));
  const messages = [];
  for (const prompt of job.prompts) {
    const parts = content(job, prompt, "text", (url) => ({ type: "image_url", image_url: { url } }));
    messages.push({ role: "user", content: parts });
    const body = { model: job.model, messages: [...messages], ...job.parameters };
    const runner = clientOf(job).chat.completions.runTools({ ...body, tools, stream: true });
    let thought = "";
    for await (const chunk of runner) {
      thought += chunk.choices[0]?.delta.reasoning_content ?? "";
      if (job.leave && chunk.choices[0]?.delta.content) {
        runner.abort();
        seen.leave();
      }
    }
    await runner.done();
    seen.add(null, thought);
    for (const message of runner.messages.slice(messages.length)) {
      if (message.role === "assistant") seen.add(message.content);
      messages.push(message);
    }
    seen.finish = runner.allChatCompletions().at(-1).choices[0].finish_reason;
  }
}

async function responseConversation(job, seen, oneRound) {
  const client = clientOf(job);
  const input = [];
  for (const prompt of job.prompts) {
    const picture = (url) => ({ type: "input_image", image_url: url, detail: "auto" });
    input.push({ role: "user", content: content(job, prompt, "input_text", picture) });
    for (;;) {
      const tools = job.tools.length ? { tools: responseTools(job) } : {};
      const response = await oneRound(client, { model: job.model, input, store: false, ...tools, ...job.parameters });
      if (response.error) throw Object.assign(new Error(response.error.message), { code: response.error.code });
      const thoughts = response.output.filter((item) => item.type === "reasoning").flatMap((item) => item.summary);
      seen.add(response.output_text, thoughts.map((part) => part.text).join(""));
      seen.finish = response.status;
      seen.usage = response.usage;
      input.push(...response.output);
      const calls = response.output.filter((item) => item.type === "function_call");
      for (const call of calls) {
        const output = seen.run(call.name, call.arguments);
        input.push({ type: "function_call_output", call_id: call.call_id, output });
      }
      if (!calls.length) break;
    }
  }
}

const responses = (job, seen) =>
  responseConversation(job, seen, (client, body) => client.responses.create(body, { signal: leaving(job, seen) }));

const ENDS = ["response.completed", "response.incomplete", "response.failed"];

const responsesStream = (job, seen) =>
  responseConversation(job, seen, async (client, body) => {
    const stream = await client.responses.create({ ...body, stream: true });
    let ended = null;
    let text = "";
    for await (const event of stream) {
      if (event.type === "response.output_text.delta") {
        text += event.delta;
        if (job.leave) {
          stream.controller.abort();
          seen.leave();
        }
      }
      if (ENDS.includes(event.type)) ended = event.response;
    }
    if (!ended) throw new Error("The stream has no end.");
    return { ...ended, output_text: text };
  });

const responsesHelper = (job, seen) =>
  responseConversation(job, seen, async (client, body) => {
    const stream = client.responses.stream(body);
    for await (const event of stream) {
      if (event.type === "response.output_text.delta" && job.leave) {
        stream.abort();
        seen.leave();
      }
    }
    return stream.finalResponse();
  });

await main({
  chat,
  "chat-stream": chatStream,
  "chat-helper": chatHelper,
  "chat-runner": chatRunner,
  responses,
  "responses-stream": responsesStream,
  "responses-helper": responsesHelper,
});
