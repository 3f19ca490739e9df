// An editor of the protocol's own SDK: starts the agent that its first line of standard input names, and says what it saw.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { client, methods, ndJsonStream, PROTOCOL_VERSION } from "@agentclientprotocol/sdk";

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const job = JSON.parse(Buffer.concat(chunks).toString());
const agent = spawn(job.command[0], job.command.slice(1), { stdio: ["pipe", "pipe", "inherit"], cwd: job.cwd });
const seen = { updates: [], permissions: [], files: [], commands: [] };
let cancelAtPermission = false;

const app = client({ name: "scripted-editor" })
  .onNotification(methods.client.session.update, ({ params }) => void seen.updates.push(params.update))
  .onRequest(methods.client.session.requestPermission, async ({ params }) => {
    seen.permissions.push(params);
    if (!cancelAtPermission) return { outcome: { outcome: "selected", optionId: params.options[0].optionId } };
    await context.notify(methods.agent.session.cancel, { sessionId: params.sessionId });
    return { outcome: { outcome: "cancelled" } };
  })
  .onRequest(methods.client.fs.readTextFile, ({ params }) => {
    seen.files.push(params);
    return { content: "from the editor\n" };
  })
  .onRequest(methods.client.fs.writeTextFile, ({ params }) => {
    seen.files.push(params);
    return {};
  });

let context;
await app.connectWith(ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)), async (connected) => {
  context = connected;
  const fs = { readTextFile: Boolean(job.fs), writeTextFile: Boolean(job.fs) };
  seen.about = await context.request(methods.agent.initialize, {
    protocolVersion: PROTOCOL_VERSION,
    clientCapabilities: { fs, terminal: false },
    clientInfo: { name: "scripted-editor", version: "1" },
  });
  const { sessionId, configOptions } = await context.request(methods.agent.session.new, { cwd: job.cwd, mcpServers: [] });
  seen.options = configOptions;
  const prompt = (text) => context.request(methods.agent.session.prompt, { sessionId, prompt: [{ type: "text", text }] });
  await context.request(methods.agent.session.setConfigOption, { sessionId, configId: "mode", value: "ask" });
  seen.stops = [(await prompt("One.")).stopReason];
  cancelAtPermission = true;
  seen.stops.push((await prompt("Two.")).stopReason);
  seen.listed = (await context.request(methods.agent.session.list, { cwd: job.cwd })).sessions;
  seen.live = seen.updates.length;
  await context.request(methods.agent.session.load, { sessionId, cwd: job.cwd, mcpServers: [] });
  await context.request(methods.agent.session.close, { sessionId });
  await context.request(methods.agent.session.delete, { sessionId });
  seen.left = (await context.request(methods.agent.session.list, {})).sessions;
});
agent.stdin.end();
agent.on("exit", (code) => {
  console.log(JSON.stringify({ ...seen, code }));
  process.exit(0);
});
