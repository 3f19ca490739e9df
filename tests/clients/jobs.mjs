/** Jobs of a client's script, and what the client saw of each: as jobs.py has them. */

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const JOB_LIMIT_MS = 45_000;
const DECLARED = JSON.parse(readFileSync(join(dirname(fileURLToPath(import.meta.url)), "tools.json"), "utf8"));

const TOOLS = {
  weather: ({ city }) => `12 degrees in ${city}`,
  add: ({ a, b }) => String(a + b),
  note: ({ text, tags, urgent, size }) => {
    const digest = createHash("sha256").update(text).digest("hex").slice(0, 12);
    return `noted ${digest} ${tags.length} ${urgent ? "True" : "False"} ${size}`;
  },
};

/** The client went away, as it was to. */
export class Left extends Error {}

/** All that a client understood. */
export class Seen {
  constructor() {
    Object.assign(this, { texts: [], thoughts: [], calls: [], finish: null, usage: null, error: null, left: null });
  }

  add(text, thought) {
    if (text) this.texts.push(text);
    if (thought) this.thoughts.push(thought);
  }

  /** Run a tool and keep its call. */
  run(name, given) {
    const read = typeof given === "string" ? JSON.parse(given) : given;
    this.calls.push([name, read]);
    return TOOLS[name] ? TOOLS[name](read) : `There is no tool ${name}.`;
  }

  /** Go away: what is around closes the client's stream. */
  leave() {
    this.left = Date.now() / 1000;
    throw new Left();
  }
}

export function declared(job) {
  return Object.fromEntries(job.tools.map((name) => [name, DECLARED[name]]));
}

/** A signal for an answer that is not streamed: it ends that of a client that is to leave, when the model has begun. */
export function leaving(job, seen) {
  const controller = new AbortController();
  if (job.leave) {
    fetch(job.leave).then(() => {
      seen.left = Date.now() / 1000;
      controller.abort(new Left());
    });
  }
  return controller.signal;
}

export async function main(ways) {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  const { at_once: atOnce, jobs } = JSON.parse(Buffer.concat(chunks).toString());
  const rows = [];
  const waiting = jobs.entries();
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      for (const [at, job] of waiting) rows[at] = { id: job.id, ...(await one(ways[job.way], job)) };
    }),
  );
  process.stdout.write(`${rows.map((row) => JSON.stringify(row)).join("\n")}\n`, () => process.exit());
}

async function one(ask, job) {
  const seen = new Seen();
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(Object.assign(new Error("too late"), { name: "TimeoutError" })), JOB_LIMIT_MS);
  });
  try {
    await Promise.race([ask(job, seen), late]);
  } catch (error) {
    if (!(error instanceof Left) && !seen.left) seen.error = described(error);
  } finally {
    clearTimeout(timer);
  }
  return seen;
}

/** Of the error and what caused it: names, the HTTP status, and all messages. */
function described(error) {
  const chain = [error];
  for (let next = error; (next = next?.cause ?? next?.lastError) && chain.length < 8; ) chain.push(next);
  const status = chain.map((each) => each?.status ?? each?.statusCode).find((each) => typeof each === "number") ?? null;
  const message = chain.map((each) => `${each?.name}: ${each?.message ?? JSON.stringify(each)}`).join("\n");
  return { kind: error?.name ?? "error", status, code: error?.code ?? null, message: message.slice(0, 2000) };
}
