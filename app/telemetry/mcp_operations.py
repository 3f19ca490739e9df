"""Requests to MCP servers: attributes of the call's span, or a span of their own where no call is traced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from app.telemetry import conventions as names
from app.telemetry.instruments import Attributes, Instruments
from app.telemetry.providers import server_attributes
from tools.mcp.model import Operation, OperationEnd

OF_CALL = frozenset({names.TOOL_NAME.name, names.ERROR.name})  # its span has them itself


class OpenCall(Struct):
    """The span of a tool call under way. `error` is the last one that an MCP server has answered with."""

    span: Span
    started_ns: int
    error: str = ""


@contextmanager
def observed_operation(
    operation: Operation, spans: Tracer, metrics: Instruments, call: OpenCall | None
) -> Iterator[OperationEnd]:
    """Observe one request.

    Its span is the current one meanwhile, so that the SDK of MCP puts the traceparent into `_meta` of the request.
    The conventions want no span of its own where a call is traced already.
    """
    end = OperationEnd()
    name = f"{operation.method} {operation.target}".strip()
    span = call.span if call else spans.start_span(name, Context(), SpanKind.CLIENT)
    token = attach(set_span_in_context(span, Context()))
    began = time.monotonic()
    try:
        yield end
    except BaseException as error:
        if end.error is None:
            end.error = "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__
        raise
    finally:
        detach(token)
        attributes = _attributes(operation, end)
        metrics.operation.record(time.monotonic() - began, attributes)
        if call:
            call.error = end.error or ""
            span.set_attributes({name: one for name, one in attributes.items() if name not in OF_CALL})
        else:
            span.set_attributes(attributes)
            if end.error:
                span.set_status(Status(StatusCode.ERROR))
            span.end()


def _attributes(operation: Operation, end: OperationEnd) -> Attributes:
    found: Attributes = {
        names.METHOD.name: operation.method,
        names.SERVER.name: operation.server,
        names.TRANSPORT.name: "tcp" if operation.url else "pipe",
    }
    if operation.protocol:
        found[names.PROTOCOL.name] = operation.protocol
    if operation.target:
        found |= {names.TOOL_NAME.name: operation.target, names.OPERATION.name: "execute_tool"}
    found |= server_attributes(operation.url)
    if end.error:
        found[names.ERROR.name] = end.error
    if end.status_code is not None:
        found[names.STATUS_CODE.name] = str(end.status_code)
    return found
