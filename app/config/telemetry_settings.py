"""Settings of OpenTelemetry. The collector is named by the standard variables, OTEL_EXPORTER_OTLP_ENDPOINT ..."""

from __future__ import annotations

from pydantic import BaseModel

from app.core.settings_fields import setting


class TelemetrySettings(BaseModel, defer_build=True):
    """OpenTelemetry."""

    otel: bool | None = setting(
        None,
        "export traces and metrics with OpenTelemetry (default: if OTEL_EXPORTER_OTLP_ENDPOINT is set)",
        "true or false",
    )
    otel_propagate: bool = setting(
        False, "send the traceparent of a run with its requests to model servers", "true or false"
    )
