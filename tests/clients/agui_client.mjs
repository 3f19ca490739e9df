/** @ag-ui/client: its HttpAgent, which checks the order of the events, with tools that the page runs. */

import { HttpAgent } from "@ag-ui/client";

import { declared, main } from "./jobs.mjs";

async function agui(job, seen) {
  const tools = Object.entries(declared(job)).map(([name, tool]) => ({ name, ...tool }));
  const agent = new HttpAgent({ url: `${job.url}/ag-ui`, headers: { Authorization: `Bearer ${job.key}` } });
  for (const prompt of job.prompts) {
    const [mimeType, value] = job.picture?.slice("data:".length).split(";base64,") ?? [];
    const picture = { type: "image", source: { type: "data", value, mimeType } };
    const content = job.picture ? [{ type: "text", text: prompt }, picture] : prompt;
    agent.addMessage({ id: crypto.randomUUID(), role: "user", content });
    let decisions = [];
    do decisions = await oneRun(job, seen, agent, tools, decisions);
    while (decisions);
  }
}

/** One run, and the tools that it called. Returns decisions on calls that it asked about; null after the last run. */
async function oneRun(job, seen, agent, tools, resume) {
  let interrupts = [];
  let failure = null;
  let pending = [];
  let text = "";
  const result = await agent.runAgent(
    { tools, forwardedProps: { model: job.model, ...job.parameters }, ...(resume.length ? { resume } : {}) },
    {
      onTextMessageContentEvent({ event }) {
        text += event.delta;
        if (job.leave && !seen.left) {
          seen.left = Date.now() / 1000;
          agent.abortRun();
        }
      },
      onRunErrorEvent({ event }) {
        failure = Object.assign(new Error(event.message), { code: event.code });
      },
      onRunFinishedEvent({ event, pendingToolCallIds }) {
        pending = pendingToolCallIds ?? [];
        interrupts = event.outcome?.interrupts ?? [];
        seen.finish = event.outcome?.type ?? "success";
        const [usage] = event.usage ?? [];
        if (usage) seen.usage = usage;
      },
    },
  );
  if (seen.left) return null;
  if (failure) throw failure;
  const calls = [];
  for (const message of result.newMessages) {
    if (message.role === "reasoning") seen.add(null, message.content);
    if (message.role === "assistant") {
      seen.add(message.content);
      calls.push(...(message.toolCalls ?? []).filter(({ id }) => pending.includes(id)));
    }
  }
  for (const { id, function: called } of interrupts.length ? [] : calls) {
    const content = seen.run(called.name, called.arguments);
    agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: id, content });
  }
  if (!calls.length && !interrupts.length) return null;
  return interrupts.map(({ id }) => ({
    interruptId: id,
    status: "resolved",
    payload: { approved: job.verdict },
  }));
}

await main({ agui });
