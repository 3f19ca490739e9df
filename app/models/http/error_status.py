"""Map an error object inside an answer to an HTTP status: by its number, else by its code or type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NUMBERS = ("code", "status", "status_code")
# Codes and types of errors of various servers; unknown ones count as 500.
STATUSES = {
    "invalid_request_error": 400,
    "BadRequestError": 400,  # vLLM, SGLang
    "INVALID_ARGUMENT": 400,  # Gemini
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,  # Anthropic
    "insufficient_quota": 402,
    "exceeded_current_quota_error": 402,  # Moonshot
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "timeout": 408,
    "request_too_large": 413,  # Anthropic
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "rate_limit_reached_error": 429,  # Moonshot
    "RESOURCE_EXHAUSTED": 429,
    "engine_overloaded_error": 503,
    "UNAVAILABLE": 503,
    "timeout_error": 504,  # Anthropic
    "overloaded_error": 529,
}


def status_of(error: Mapping[str, Any]) -> int:
    """Return the status by number, else by code, else by type, which is the least specific."""
    numbers = [number for name in NUMBERS if (number := number_in(error.get(name)))]
    words = [error.get(name) for name in ("code", "status", "type")]
    return next(iter(numbers), 0) or next((STATUSES[word] for word in words if word in STATUSES), 500)


def number_in(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) == 3:
        value = int(value)
    return value if isinstance(value, int) and 400 <= value < 600 else None
