"""Failures of model servers as ProviderFailed: the URL, the server's message, and advice what to do next."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from math import ceil
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct
from msgspec.structs import replace

from app.core.provider import ProviderFailed
from app.models.http.prompt_too_long import is_too_long, limit_in
from tools.base.patterns import lazy_pattern

EXCERPT = 300
CAUSE = 160  # characters of a failure's cause in a notice
# Where servers put their words: {"error": {"message"}} of OpenAI and Anthropic, {"detail": [{"msg"}]} of FastAPI.
PLACES = ("message", "detail", "msg", "error", "errors", "title")
DEEPEST = 5
LONGEST_BODY = 100_000  # characters in which a title is looked for
TITLE = lazy_pattern(r"<title[^>]*>([^<]{1,300})", re.IGNORECASE)
ANSWER_TOO_LONG = "model_too_long"  # code of an answer beyond the size limit
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


class Remedy(Struct, frozen=True):
    """One row of the status table. `retryable`: the same request may succeed later. `meant`: the status of servers that
    send another one."""

    code: str
    retryable: bool
    advice: str
    meant: int | None = None


REMEDIES: dict[int, Remedy] = {
    400: Remedy("model_rejected", False, "The server rejected this request: see its message."),
    401: Remedy("model_auth", False, "Set DRAGOMAN_MODEL_KEY, or the endpoint's own key, to one that is accepted."),
    402: Remedy("model_auth", False, "The account behind the key has no credit left."),
    403: Remedy("model_auth", False, "The key may not use this model: use another key or model."),
    404: Remedy(
        "model_not_found",
        False,
        "Check that this model is served there, and that the URL (DRAGOMAN_MODEL_URL) ends in /v1.",
    ),
    408: Remedy("model_silent", True, "Try again."),
    413: Remedy("model_context", False, "Send less, or smaller pictures, or set a smaller DRAGOMAN_WINDOW."),
    429: Remedy("model_busy", True, "The server limits requests: wait a little, then try again."),
    500: Remedy("model_failed", True, "Check the model server's log, then try again."),
    502: Remedy("model_down", True, "The gateway cannot reach the model: check that it runs, then try again."),
    503: Remedy("model_down", True, "The model is loading or overloaded: wait a little, then try again."),
    504: Remedy("model_silent", True, "The gateway gave up waiting for the model: try again."),
    529: Remedy("model_down", True, "The model is overloaded: wait a little, then try again."),  # Anthropic
}
MOVED = Remedy(
    "model_not_found",
    False,
    "The server has moved: set DRAGOMAN_MODEL_URL to the new address (https instead of http?).",
)
CONTEXT = Remedy("model_context", False, "Shorten the conversation, or set DRAGOMAN_WINDOW to what the model can hold.")
UNREADABLE_CALL = "tool_use_failed"  # Groq's code, sent with 400 although the request is valid
UNREAD = Remedy("model_failed", True, "The model wrote a call that its server cannot read: try again.", meant=500)
# Words of LiteLLM and of transformers serve, sent with 400.
NO_SUCH_MODEL = lazy_pattern(r"Invalid model name passed in model=|Server is pinned to '[^']{1,1000}'; requested '")
UNKNOWN = replace(REMEDIES[404], meant=404)


def remedy_for(status: int, text: str) -> Remedy:
    """Return the row for a status; a prompt that is too long is recognised by the message."""
    if status != 429 and is_too_long(text):
        return CONTEXT
    if UNREADABLE_CALL in text:
        return UNREAD
    if status == 400 and NO_SUCH_MODEL.search(text):
        return UNKNOWN
    if status in REMEDIES:
        return REMEDIES[status]
    if 300 <= status < 400:
        return MOVED
    return REMEDIES[500] if status >= 500 else REMEDIES[400]


def excerpt(text: str, most: int = EXCERPT) -> str:
    """Return the first characters, on one line."""
    flat = " ".join(text[: most * 4].split())
    return flat[:most] + ("..." if len(flat) > most else "")


def reason_in(text: str) -> str:
    """Return the message in a server's error body: of JSON its words, of HTML its title, else the body itself."""
    if text.lstrip()[:1] == "<":
        title = TITLE.search(text[:LONGEST_BODY])
        return html.unescape(title[1]).strip() if title else "an HTML page"
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return text.strip()
    return _words(body) or text.strip()


def _words(body: Any) -> str:
    """The first words in the places where servers put them: `{"error": {"message": ...}}`, `{"detail": ...}`, ..."""
    for _ in range(DEEPEST):
        if isinstance(body, list) and body:
            body = body[0]  # Gemini's OpenAI-compatible API answers a list of one
        elif isinstance(body, dict):
            body = next((body[name] for name in PLACES if body.get(name)), None)
    return body.strip() if isinstance(body, str) else ""


def redact_url(url: str) -> str:
    """Return the URL without user, password, query and fragment, which may contain keys."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def bad_status(url: str, status: int, text: str, retry_after_s: float | None = None) -> ProviderFailed:
    """Build the failure for a status other than 200."""
    row = remedy_for(status, text)
    reason = reason_in(text)
    body = f": {excerpt(reason)}" if reason else " and an empty body"
    wait = f" It asks to wait {ceil(retry_after_s)} s." if retry_after_s else ""
    message = f"{redact_url(url)} answered {status}{body}{full_stop(body)} {row.advice}{wait}"
    cause = reason if any(map(str.isalnum, reason)) else f"status {status}"
    return provider_failure(row, message, text, row.meant or status, retry_after_s=retry_after_s, cause=cause)


def error_in_stream(url: str, error: Any) -> ProviderFailed:
    """Build the failure for an error object (or text) inside a stream."""
    fields = error if isinstance(error, dict) else {"message": error}
    text = str(fields.get("message") or error)
    status = status_of(fields)
    row = remedy_for(status, f"{text} {fields.get('type')} {fields.get('code')}")
    shown = excerpt(text)
    message = f"{redact_url(url)} reported an error in its answer: {shown}{full_stop(shown)} {row.advice}"
    counted = f'{text} "n_ctx":{fields.get("n_ctx")}'
    return provider_failure(row, message, counted, row.meant or status, cause=text)


def provider_failure(
    row: Remedy,
    message: str,
    text: str,
    status: int | None = None,
    *,
    retry_after_s: float | None = None,
    cause: str = "",
) -> ProviderFailed:
    """Build the failure of a row, with the context limit if the server's message contains it."""
    window = limit_in(text) if row.code == CONTEXT.code else None
    return ProviderFailed(
        row.code,
        message,
        retryable=row.retryable,
        window=window,
        status=status,
        retry_after_s=retry_after_s,
        cause=cause,
    )


def cause_of(failure: ProviderFailed) -> str:
    """Return what is wrong, in a line without a full stop at its end."""
    return excerpt(failure.cause or failure.message.partition(". ")[0], CAUSE).rstrip(".")


def unreachable(url: str, why: str = "") -> ProviderFailed:
    """Build the failure for a refused connection."""
    detail = f" ({excerpt(why)})" if why else ""
    advice = "start your server or set DRAGOMAN_MODEL_URL, or its endpoint's url, to another."
    cause = f"Nothing listens on {redact_url(url)}{detail}"
    return ProviderFailed("model_down", f"{cause}: {advice}", retryable=True, cause=cause)


def interrupted(url: str, why: str) -> ProviderFailed:
    """Build the failure for an answer that broke off."""
    advice = "Try again; if it persists, check the server's log."
    message = f"The answer of {redact_url(url)} broke off: {excerpt(why)}{full_stop(why)} {advice}"
    return ProviderFailed("model_cut", message, retryable=True)


def garbled(url: str, found: str, text: str) -> ProviderFailed:
    """Build the failure for an undecodable part of an answer."""
    message = f"{redact_url(url)} sent {found}: {excerpt(text)!r}. Try again; if it persists, check the server's log."
    return ProviderFailed("model_garbled", message, retryable=True)


def not_a_model(url: str, found: str, text: str) -> ProviderFailed:
    """Build the failure for an answer that is not from a model server."""
    message = (
        f"{redact_url(url)} sent {found}: {excerpt(text)!r}. "
        "Check that DRAGOMAN_MODEL_URL, or the endpoint's url, is the base URL of a model server, ending in /v1."
    )
    return ProviderFailed("model_garbled", message, retryable=False)


def silent(url: str, seconds: float | None) -> ProviderFailed:
    """Build the failure for a server that exceeds the inactivity limit."""
    waited = "too long" if seconds is None else f"{seconds:g} s"
    message = (
        f"{redact_url(url)} sent nothing for {waited}. Check its log, then try again or raise the inactivity limit."
    )
    return ProviderFailed("model_silent", message, retryable=True)


def too_long(url: str, limit: int) -> ProviderFailed:
    """Build the failure for an answer beyond the size limit."""
    message = f"The answer of {redact_url(url)} is longer than {limit} bytes and was stopped. Set a token limit."
    return ProviderFailed(ANSWER_TOO_LONG, message, retryable=False)


def full_stop(sentence: str) -> str:
    """Return the full stop that the sentence lacks, if it does."""
    return "" if sentence.endswith((".", "!", "?")) else "."


def status_of(error: Mapping[str, Any]) -> int:
    """Return the status by number, else by code, else by type, which is the least specific."""
    numbers = [number for name in NUMBERS if (number := number_in(error.get(name)))]
    words = [word for name in ("code", "status", "type") if isinstance(word := error.get(name), str)]
    return next(iter(numbers), 0) or next((STATUSES[word] for word in words if word in STATUSES), 500)


def number_in(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) == 3:
        value = int(value)
    return value if isinstance(value, int) and 400 <= value < 600 else None
