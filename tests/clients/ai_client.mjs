/** ai (the AI SDK) with its providers for compatible servers, OpenAI and Anthropic: generateText and streamText. */

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, jsonSchema, streamText, tool } from "ai";

import { declared, Left, leaving, main } from "./jobs.mjs";

const MOST_STEPS = 8;
const PROVIDERS = {
  "chat-compatible": (job) =>
    createOpenAICompatible({ name: "dragoman", baseURL: `${job.url}/v1`, apiKey: job.key, includeUsage: true })(job.model),
  "chat-openai": (job) => createOpenAI({ baseURL: `${job.url}/v1`, apiKey: job.key }).chat(job.model),
  "responses-openai": (job) => createOpenAI({ baseURL: `${job.url}/v1`, apiKey: job.key }).responses(job.model),
  "messages-anthropic": (job) => createAnthropic({ baseURL: `${job.url}/v1`, apiKey: job.key })(job.model),
};

function tools(job, seen) {
  const made = Object.entries(declared(job)).map(([name, { description, parameters }]) => [
    name,
    tool({ description, inputSchema: jsonSchema(parameters), execute: (given) => seen.run(name, given) }),
  ]);
  return Object.fromEntries(made);
}

async function conversation(job, seen, answer) {
  const messages = [];
  for (const prompt of job.prompts) {
    const picture = { type: "file", mediaType: "image/png", data: job.picture?.split(",")[1] };
    messages.push({ role: "user", content: job.picture ? [{ type: "text", text: prompt }, picture] : prompt });
    const result = await answer({
      model: PROVIDERS[job.way.replace(/-stream$/, "")](job),
      messages,
      tools: tools(job, seen),
      stopWhen: isStepCount(MOST_STEPS),
      maxRetries: 0,
      ...(job.way.includes("responses") ? { providerOptions: { openai: { store: false } } } : {}),
    });
    for (const step of await result.steps) {
      seen.add(step.text, step.reasoningText);
      seen.finish = step.finishReason;
      seen.usage = { input: step.usage.inputTokens, all: step.usage.totalTokens };
    }
    messages.push(...(await result.responseMessages));
  }
}

const whole = (job, seen) =>
  conversation(job, seen, (request) => generateText({ ...request, abortSignal: leaving(job, seen) }));

const streamed = (job, seen) =>
  conversation(job, seen, async (request) => {
    const controller = new AbortController();
    const result = streamText({ ...request, abortSignal: controller.signal, onError: () => {} });
    for await (const part of result.fullStream) {
      if (part.type === "error") throw part.error;
      if (part.type === "text-delta" && job.leave) {
        controller.abort(new Left());
        seen.leave();
      }
    }
    return result;
  });

const ways = Object.keys(PROVIDERS).flatMap((name) => [
  [name, whole],
  [`${name}-stream`, streamed],
]);
await main(Object.fromEntries(ways));
