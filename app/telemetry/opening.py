"""Switching OpenTelemetry on: by the standard variables or the setting `otel`. Until then nothing of it is imported."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from msgspec import Struct, field

from app.config.settings import Settings
from app.config.sources import SettingsError
from app.core.observers import Observers
from app.core.settings_fields import is_url
from app.redaction.redactor import Redactor
from app.telemetry.content import CAPTURE, ON, ContentWriter
from tools.mcp.model import ObserveOperation

if TYPE_CHECKING:
    from app.telemetry.exporting import Exports
    from app.telemetry.tracing import Telemetry

ENDPOINTS = tuple(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT" for signal in ("", "TRACES_", "METRICS_"))
PROTOCOLS = tuple(f"OTEL_EXPORTER_OTLP_{signal}PROTOCOL" for signal in ("", "TRACES_", "METRICS_"))
HEADERS = tuple(f"OTEL_EXPORTER_OTLP_{signal}HEADERS" for signal in ("", "TRACES_", "METRICS_"))
PROTOCOL = "http/protobuf"
DEFAULT_ENDPOINT = "http://localhost:4318"
PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
EXPORTING = "app.telemetry.exporting"  # importing it imports the SDK, which takes 0.2 s
MISSING = "OpenTelemetry needs packages that are not installed: run pip install 'dragoman[otel]'"

_log = logging.getLogger(__name__)


def is_on(settings: Settings, environ: Mapping[str, str]) -> bool:
    """Return True if the setting says so, or without it a standard variable."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or settings.otel is False:
        return False
    return bool(settings.otel or any(environ.get(name) for name in ENDPOINTS))


def problems(environ: Mapping[str, str]) -> Iterator[str]:
    """Reasons that nothing can be exported, a sentence each."""
    if not all(map(_is_installed, PACKAGES)):
        yield f"{MISSING}, or set otel = false."
    for name in PROTOCOLS:
        if environ.get(name, PROTOCOL) != PROTOCOL:
            given = environ[name][:40]
            yield f"{name} is {given!a}, and only {PROTOCOL} is supported: set that, and an endpoint for it."
    for name in ENDPOINTS:
        if not is_url(environ.get(name) or DEFAULT_ENDPOINT):
            yield f"{name} is no http or https URL. Set one such as http://127.0.0.1:4318."


class Traced(Struct):
    """The observers of a server, the tracer among them, and the observer of MCP requests; none where it is off."""

    observers: Observers = field(default_factory=Observers)
    operations: ObserveOperation | None = None


@asynccontextmanager
async def opened_telemetry(
    settings: Settings, redactor: Redactor, environ: Mapping[str, str]
) -> AsyncGenerator[Traced, None]:
    """Trace and measure the runs of this server, if that is on.

    Raises SettingsError if the setting `otel` demands what cannot be. Standard variables alone, which may be there for
    other programs, only cause a warning.
    """
    if not is_on(settings, environ):
        yield Traced()
        return
    redactor.add(*secrets_in_headers(environ))
    try:
        exports = made_exports(settings, redactor, environ)
    except SettingsError as refused:
        if settings.otel:
            raise
        _log.warning("Traces and metrics are not exported. %s", refused)
        yield Traced()
        return
    telemetry: Telemetry = exports.telemetry
    try:
        yield Traced(Observers([telemetry], telemetry), telemetry.observe_operation)
    finally:
        await exports.close()


def made_exports(settings: Settings, redactor: Redactor, environ: Mapping[str, str]) -> Exports:
    """Set up the SDK. Raises SettingsError."""
    if found := list(problems(environ)):
        raise SettingsError([f"otel: {one}" for one in found])
    content = ContentWriter(redactor) if _captures(settings, environ) else None
    exporting = import_module(EXPORTING)
    try:
        exports: Exports = exporting.Exports(environ, content, propagates=settings.otel_propagate)
    except ValueError as refused:
        problem = f"otel: a variable OTEL_... cannot be used: {' '.join(str(refused).split())} Correct or remove it."
        raise SettingsError([problem]) from refused
    return exports


def secrets_in_headers(environ: Mapping[str, str]) -> Iterator[str]:
    """The values of the headers for the collector, which are keys as a rule."""
    for name in HEADERS:
        for header in environ.get(name, "").split(","):
            value = header.partition("=")[2].strip()
            yield from filter(None, {value, value.rpartition(" ")[2], value.rpartition("%20")[2]})


def _captures(settings: Settings, environ: Mapping[str, str]) -> bool:
    """Return True if content is exported. Labelled data stays here: a collector is no endpoint that may have it."""
    if environ.get(CAPTURE, "").strip().lower() not in ON:
        return False
    if settings.label_policy.is_used:
        _log.warning("%s is ignored: labels are configured, and content may be labelled.", CAPTURE)
        return False
    return True


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ImportError:  # of a package above it
        return False
