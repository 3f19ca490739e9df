"""Requests to MCP servers: attributes of the call's span, or a span of their own where no call is traced."""

from __future__ import annotations

import asyncio
import time
from contextvars import Token
from types import TracebackType

from msgspec import Struct
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from app.telemetry import conventions as names
from app.telemetry.instruments import Attributes, Instruments
from app.telemetry.providers import server_attributes
from tools.mcp.operations import Operation, OperationEnd

OF_CALL = frozenset({names.TOOL_NAME.name, names.ERROR.name})  # its span has them itself


class OpenCall(Struct):
    """The span of a tool call under way. `error` is the last one that an MCP server has answered with."""

    span: Span
    started_ns: int
    error: str = ""


class ObservedOperation:
    """A context manager around one request.

    Its span is the current one meanwhile, so that the SDK of MCP puts the traceparent into `_meta` of the request.
    The conventions want no span of its own where a call is traced already.
    """

    def __init__(self, operation: Operation, spans: Tracer, metrics: Instruments, call: OpenCall | None) -> None:
        self._operation = operation
        self._spans = spans
        self._metrics = metrics
        self._call = call
        self._end = OperationEnd()

    def __enter__(self) -> OperationEnd:
        self._span = self._call.span if self._call else self._own_span()
        self._token: Token[Context] = attach(set_span_in_context(self._span, Context()))
        self._began = time.monotonic()
        return self._end

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        detach(self._token)
        seconds, end = time.monotonic() - self._began, self._end
        if kind and end.error is None:
            end.error = "cancelled" if issubclass(kind, asyncio.CancelledError) else kind.__name__
        attributes = self._attributes()
        if end.error:
            attributes[names.ERROR.name] = end.error
        if end.status_code is not None:
            attributes[names.STATUS_CODE.name] = str(end.status_code)
        self._metrics.operation.record(seconds, attributes)
        if self._call:
            self._call.error = end.error or ""
            others = {name: one for name, one in attributes.items() if name not in OF_CALL}
            self._span.set_attributes(others)
            return
        self._span.set_attributes(attributes)
        if end.error:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()

    def _own_span(self) -> Span:
        name = f"{self._operation.method} {self._operation.target}".strip()
        return self._spans.start_span(name, Context(), SpanKind.CLIENT)

    def _attributes(self) -> Attributes:
        operation = self._operation
        found: Attributes = {
            names.METHOD.name: operation.method,
            names.SERVER.name: operation.server,
            names.TRANSPORT.name: "tcp" if operation.url else "pipe",
        }
        if operation.protocol:
            found[names.PROTOCOL.name] = operation.protocol
        if operation.target:
            found |= {names.TOOL_NAME.name: operation.target, names.OPERATION.name: "execute_tool"}
        return found | server_attributes(operation.url)
