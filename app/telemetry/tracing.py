"""Spans and metrics of runs, model requests, tool calls and MCP requests, from what the observers see.

    invoke_agent                     a run; its parent is the request's traceparent, or the call that delegates it
      chat MODEL                     each model request, side queries included
      execute_tool NAME              each call that runs; an MCP request adds attributes, and passes it on in `_meta`

All of it happens in the event loop, in microseconds: ended spans wait in a bounded queue for the exporter's thread.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

from msgspec import Struct, field
from opentelemetry.context import Context
from opentelemetry.metrics import Meter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace import Tracer as SpanMaker
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.core import events
from app.core.observers import ObservedRequest, ObservedRun, RequestSpan
from app.core.provider import Provider
from app.telemetry import conventions as names
from app.telemetry.content import ContentWriter
from app.telemetry.instruments import Attributes, Instruments
from app.telemetry.mcp_operations import OpenCall, observed_operation
from app.telemetry.providers import answering, provider_attributes
from tools.mcp.model import Operation, OperationEnd

SPOKEN = frozenset({"retry", "fallback", "waiting", "queued", "key_disabled"})  # notices whose words hold no content
NS = 1_000_000_000
SUSPENDED = "suspended"  # the outcome of runs that go on later or elsewhere
RESUMED = "resumed"  # the code of the notice with which they go on


class OpenRun(Struct):
    """The span of a run under way, and the spans in it. `request` is that of its round."""

    span: Span
    started_ns: int
    attributes: Attributes
    request: Span | None = None
    calls: dict[str, OpenCall] = field(default_factory=dict)

    def event(self, name: names.Convention, attributes: Attributes) -> None:
        """Add an event to the model request under way if it is about that, else to the run."""
        is_of_request = name is names.NOTICE and self.request is not None
        (self.request if self.request and is_of_request else self.span).add_event(name.name, attributes)


class OpenRequest(Struct, eq=False):
    """The span of a model request under way: a RequestSpan."""

    traceparent: str
    span: Span
    started_ns: int


class Telemetry:
    """An Observer and a Tracer, of the runs of one server."""

    def __init__(
        self,
        spans: SpanMaker,
        meter: Meter,
        *,
        content: ContentWriter | None = None,
        propagates: bool = False,
    ) -> None:
        self._spans = spans
        self._metrics = Instruments(meter)
        self._content = content
        self._propagates = propagates
        self._runs: dict[str, OpenRun] = {}
        self._opened = time.time()

    def observe_event(self, run: ObservedRun, event: events.AgentEvent) -> None:
        open_run = self._runs.get(run.id) or self._begin_run(run, event)
        match event:
            case events.ToolStarted():
                self._begin_call(run, open_run, event)
            case events.ToolFinished():
                self._end_call(open_run, event)
            case events.RunFinished() | events.RunFailed():
                self._end_run(run.id, event)
            case events.Notice(code=code):
                words: Attributes = {names.MESSAGE.name: event.message} if code in SPOKEN else {}
                open_run.event(names.NOTICE, {names.CODE.name: code} | words)
            case events.ApprovalRequired():
                open_run.event(names.ASKED, _about(event.call, event.name))
            case events.ApprovalResolved():
                open_run.event(names.RESOLVED, _about(event.call) | {names.DECISION.name: event.decision})
            case events.ToolRejected():
                open_run.event(names.REJECTED, _about(event.call, event.name))
            case events.ToolHanded():
                open_run.event(names.HANDED, _about(event.call, event.name))

    def begin_request(self, run: str, session: str, provider: Provider, *, in_round: bool) -> RequestSpan:
        open_run = self._runs.get(run)
        started_ns = time.time_ns()
        kind = "round" if in_round else "side"
        attributes: Attributes = {
            names.OPERATION.name: "chat",
            names.MODEL.name: provider.model,
            names.STREAM.name: True,
            names.CONVERSATION.name: session,
            names.RUN.name: run,
            names.IN_ROUND.name: kind,
        }
        attributes |= provider_attributes(provider)
        parent = set_span_in_context(open_run.span) if open_run else Context()
        name = names.CHAT.name.format(model=provider.model)
        span = self._spans.start_span(name, parent, SpanKind.CLIENT, attributes, start_time=started_ns)
        if open_run and in_round:
            open_run.request = span
        return OpenRequest(traceparent_of(span) if self._propagates else "", span, started_ns)

    def observe_request(self, request: ObservedRequest) -> None:
        begun = request.span
        if not isinstance(begun, OpenRequest) or request.provider is None:
            return
        if (open_run := self._runs.get(request.run)) and open_run.request is begun.span:
            open_run.request = None
        seconds = request.ended - request.sent
        first_s = None if request.first is None else request.first - request.sent
        shared: Attributes = {names.OPERATION.name: "chat", names.MODEL.name: request.model}
        shared |= provider_attributes(request.provider)
        if first_s is not None:
            shared[names.ANSWERED_BY.name] = answering(request.provider).model
        self._metrics.request(request, seconds, first_s, shared)
        begun.span.set_attributes(shared | self._answer_attributes(request, first_s))
        _end(begun.span, begun.started_ns, seconds, request.error)

    def traceparent(self, run: str, call: str) -> str:
        open_run = self._runs.get(run)
        if open_run is None:
            return ""
        open_call = open_run.calls.get(call)
        return traceparent_of(open_call.span if open_call else open_run.span)

    def observe_operation(self, operation: Operation) -> AbstractContextManager[OperationEnd]:
        """Observe a request to an MCP server, which gets the traceparent of its call."""
        open_run = self._runs.get(operation.context.run)
        open_call = open_run.calls.get(operation.context.call) if open_run else None
        return observed_operation(operation, self._spans, self._metrics, open_call)

    def leave(self, run: str) -> None:
        """End the span of a run that has not ended itself: it goes on later or elsewhere."""
        if run in self._runs:
            self._end_run(run, events.RunFinished(SUSPENDED, "", 0, 0, {}))

    def close(self) -> None:
        """End the spans that are open."""
        for run in list(self._runs):
            self.leave(run)

    def _begin_run(self, run: ObservedRun, event: events.AgentEvent) -> OpenRun:
        """Begin the span of a run; of one that goes on after a restart or elsewhere, with its first event here."""
        goes_on = run.created < self._opened or (isinstance(event, events.Notice) and event.code == RESUMED)
        began = time.time() if goes_on else run.created
        attributes: Attributes = {names.OPERATION.name: "invoke_agent", names.MODEL.name: run.model}
        of_span = attributes | {names.CONVERSATION.name: run.session, names.RUN.name: run.id}
        parent = parent_of(run.traceparent)
        started_ns = int(began * NS)
        span = self._spans.start_span(names.AGENT.name, parent, SpanKind.INTERNAL, of_span, start_time=started_ns)
        self._runs[run.id] = open_run = OpenRun(span, started_ns, attributes)
        return open_run

    def _end_run(self, run: str, event: events.RunFinished | events.RunFailed) -> None:
        open_run = self._runs.pop(run)
        for call in open_run.calls.values():
            _end(call.span, call.started_ns, None, "stopped")
        failed = event.code if isinstance(event, events.RunFailed) else None
        outcome = event.reason if isinstance(event, events.RunFinished) else event.code
        open_run.span.set_attribute(names.OUTCOME.name, outcome)
        if isinstance(event, events.RunFinished) and event.usage.get("measured"):
            open_run.span.set_attribute(names.INPUT_TOKENS.name, event.usage["prompt_tokens"])
            open_run.span.set_attribute(names.OUTPUT_TOKENS.name, event.usage["completion_tokens"])
        seconds = (time.time_ns() - open_run.started_ns) / NS
        self._metrics.run.record(seconds, open_run.attributes | _error(failed))
        _end(open_run.span, open_run.started_ns, seconds, failed)

    def _begin_call(self, run: ObservedRun, open_run: OpenRun, event: events.ToolStarted) -> None:
        started_ns = time.time_ns()
        attributes = _tool(event.name) | {
            names.TOOL_CALL.name: event.call,
            names.CONVERSATION.name: run.session,
            names.RUN.name: run.id,
        }
        if self._content:
            attributes[names.ARGUMENTS.name] = self._content.value(event.arguments)
        name = names.TOOL.name.format(name=event.name)
        parent = set_span_in_context(open_run.span)
        span = self._spans.start_span(name, parent, SpanKind.INTERNAL, attributes, start_time=started_ns)
        open_run.calls[event.call] = OpenCall(span, started_ns)

    def _end_call(self, open_run: OpenRun, event: events.ToolFinished) -> None:
        open_call = open_run.calls.pop(event.call, None)
        if open_call is None:
            return
        failed = None if event.ok else open_call.error or "tool_error"
        if self._content:
            open_call.span.set_attribute(names.RESULT.name, self._content.value(event.text))
        self._metrics.call.record(event.duration_s, _tool(event.name) | _error(failed))
        _end(open_call.span, open_call.started_ns, event.duration_s, failed)

    def _answer_attributes(self, request: ObservedRequest, first_s: float | None) -> Attributes:
        found: Attributes = {}
        if first_s is not None:
            found[names.FIRST_CHUNK.name] = first_s
        if request.measured:
            found[names.INPUT_TOKENS.name] = request.prompt_tokens
            found[names.OUTPUT_TOKENS.name] = request.completion_tokens
            if request.cached_tokens is not None:
                found[names.CACHED.name] = request.cached_tokens
        if (answer := request.answer) and answer.stopped:
            found[names.FINISH.name] = [answer.stopped]
        if self._content and answer and request.request:
            found[names.INPUT.name] = self._content.input(request.request.whole())
            found[names.OUTPUT.name] = self._content.output(answer)
        return found


def traceparent_of(span: Span) -> str:
    """Return the traceparent (W3C Trace Context) whose parent is this span."""
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def parent_of(traceparent: str) -> Context:
    """Return the context of a traceparent; an empty one, of a new trace, if there is none or it is malformed."""
    return TraceContextTextMapPropagator().extract({"traceparent": traceparent}, Context())


def _tool(name: str) -> Attributes:
    return {names.OPERATION.name: "execute_tool", names.TOOL_NAME.name: name, names.TOOL_TYPE.name: "extension"}


def _about(call: str | None, name: str | None = None) -> Attributes:
    found = {names.TOOL_CALL.name: call, names.CALL_NAMED.name: name}
    return {key: value for key, value in found.items() if value}


def _error(error: str | None) -> Attributes:
    return {names.ERROR.name: error} if error else {}


def _end(span: Span, started_ns: int, seconds: float | None, error: str | None) -> None:
    """End a span, so many seconds after its start or now. A failure has no description: it might hold content."""
    if error:
        span.set_attribute(names.ERROR.name, error)
        span.set_status(Status(StatusCode.ERROR))
    span.end(None if seconds is None else started_ns + int(seconds * NS))
