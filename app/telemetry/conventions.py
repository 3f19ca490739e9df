"""The one table of all names that are exported: spans, their attributes and events, metrics.

None of the GenAI conventions is stable yet. A renamed one is changed here, with its source and its date.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

READ_ON = "2026-11-23"
GENAI = "semantic-conventions-genai 0.1.0"  # github.com/open-telemetry/semantic-conventions-genai
GENERAL = "semantic-conventions 1.44"  # stable
OWN = "dragoman"  # no convention has it
# As the conventions advise for all durations, in seconds.
BUCKETS_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
MCP_BUCKETS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)


class Convention(Struct, frozen=True):
    """A name, where it is used, and what it holds. `unit` is that of a metric."""

    name: str
    kind: Literal["span", "attribute", "event", "metric"]
    on: str
    meaning: str
    source: str = GENAI
    unit: str = ""


def _attribute(name: str, on: str, meaning: str, source: str = GENAI) -> Convention:
    return Convention(name, "attribute", on, meaning, source)


def _event(name: str, on: str, meaning: str) -> Convention:
    return Convention(name, "event", on, meaning, OWN)


def _metric(name: str, on: str, meaning: str, unit: str = "s") -> Convention:
    return Convention(name, "metric", on, meaning, unit=unit)


AGENT = Convention(
    "invoke_agent", "span", "run", "a run, from its start or its place in the queue to its end (INTERNAL)"
)
CHAT = Convention("chat {model}", "span", "model request", "with all its retries and fallbacks (CLIENT)")
TOOL = Convention(
    "execute_tool {name}", "span", "tool call", "a call that runs, from its start to its result (INTERNAL)"
)

OPERATION = _attribute("gen_ai.operation.name", "all", "`invoke_agent`, `chat` or `execute_tool`")
CONVERSATION = _attribute("gen_ai.conversation.id", "all spans", "the session")
ERROR = _attribute("error.type", "all", "code of the failure; left out after a success", GENERAL)
MODEL = _attribute("gen_ai.request.model", "run, model request", "the model that was asked")
PROVIDER = _attribute("gen_ai.provider.name", "model request", "by the host; else the API's format, or dragoman's own")
ANSWERED_BY = _attribute("gen_ai.response.model", "model request", "the model that answered")
ADDRESS = _attribute("server.address", "model request, MCP", "host of the endpoint that answered", GENERAL)
PORT = _attribute("server.port", "model request, MCP", "its port", GENERAL)
STREAM = _attribute("gen_ai.request.stream", "model request", "always true")
FIRST_CHUNK = _attribute("gen_ai.response.time_to_first_chunk", "model request", "seconds to the first token")
FINISH = _attribute("gen_ai.response.finish_reasons", "model request", "why the model stopped, such as `stop`")
INPUT_TOKENS = _attribute("gen_ai.usage.input_tokens", "model request", "tokens of the prompt, if the server says so")
OUTPUT_TOKENS = _attribute("gen_ai.usage.output_tokens", "model request", "tokens of the answer, if the server says so")
CACHED = _attribute("gen_ai.usage.cache_read.input_tokens", "model request", "those of the prompt read from a cache")
MODALITY = _attribute("gen_ai.token.modality", "token metrics", "`text`; `unknown` beside files or without a report")
TOOL_NAME = _attribute("gen_ai.tool.name", "tool call", "name of the tool")
TOOL_CALL = _attribute("gen_ai.tool.call.id", "tool call", "id of the call")
TOOL_TYPE = _attribute("gen_ai.tool.type", "tool call", "`extension`: the server runs it")
METHOD = _attribute("mcp.method.name", "MCP", "such as `tools/call`")
PROTOCOL = _attribute("mcp.protocol.version", "MCP", "version of the protocol")
TRANSPORT = _attribute("network.transport", "MCP", "`pipe` for a process, `tcp` for HTTP", GENERAL)
STATUS_CODE = _attribute("rpc.response.status_code", "MCP", "error code of JSON-RPC", GENERAL)
RUN = _attribute("dragoman.run.id", "all spans", "the run", OWN)
OUTCOME = _attribute("dragoman.run.outcome", "run", "reason or code of its end", OWN)
IN_ROUND = _attribute(
    "dragoman.request.kind", "model request", "`round`, or `side` for summaries, judges and memory", OWN
)
SERVER = _attribute("dragoman.mcp.server", "MCP", "name of the MCP server in its list", OWN)
CALL_NAMED = _attribute("dragoman.tool.name", "events", "name of the tool of the event", OWN)
DECISION = _attribute("dragoman.approval.decision", "events", "`approved`, `denied`, `expired` or `withdrawn`", OWN)
CODE = _attribute("dragoman.notice.code", "events", "code of the notice", OWN)
MESSAGE = _attribute("dragoman.notice.message", "events", "its words, for retries and queues only", OWN)

INPUT = _attribute("gen_ai.input.messages", "model request, opt-in", "the last messages, redacted and shortened")
OUTPUT = _attribute("gen_ai.output.messages", "model request, opt-in", "the answer, redacted and shortened")
ARGUMENTS = _attribute("gen_ai.tool.call.arguments", "tool call, opt-in", "arguments, redacted and shortened")
RESULT = _attribute("gen_ai.tool.call.result", "tool call, opt-in", "the result, redacted and shortened")

NOTICE = _event(
    "dragoman.notice", "model request or run", "a retry, a fallback, a place in the queue or another notice"
)
ASKED = _event("dragoman.approval.required", "run", "a call begins to wait for a person")
RESOLVED = _event("dragoman.approval.resolved", "run", "the wait is over")
REJECTED = _event("dragoman.tool.rejected", "run", "a call that does not run")
HANDED = _event("dragoman.tool.handed", "run", "a call that the client runs")

AGENT_DURATION = _metric("gen_ai.invoke_agent.duration", "run", "time of the span")
CHAT_DURATION = _metric("gen_ai.client.inference.duration", "model request", "time of the span")
CHAT_FIRST = _metric("gen_ai.client.inference.time_to_first_chunk", "model request", "time to the first token")
CHAT_INPUT = _metric("gen_ai.client.inference.usage.input_tokens", "model request", "tokens of prompts", "{token}")
CHAT_OUTPUT = _metric("gen_ai.client.inference.usage.output_tokens", "model request", "tokens of answers", "{token}")
TOOL_DURATION = _metric("gen_ai.execute_tool.duration", "tool call", "time of the tool")
MCP_DURATION = _metric("mcp.client.operation.duration", "MCP", "time of a request to an MCP server")

TABLE = tuple(row for row in dict(globals()).values() if isinstance(row, Convention))
