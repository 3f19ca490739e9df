"""What went wrong with a model's server, as ProviderFailed: where, what it said, what to do next."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from app.core.provider import ProviderFailed
from app.models.http.error_status import status_of
from app.models.http.prompt_too_long import is_too_long, limit_in

EXCERPT = 300
ANSWER_TOO_LONG = "model_too_long"  # the code of an answer that is longer than anything sensible


@dataclass(frozen=True, slots=True)
class Remedy:
    """One row of the status table. `retryable` says that the same request may succeed later."""

    code: str
    retryable: bool
    advice: str


REMEDIES: dict[int, Remedy] = {
    400: Remedy("model_rejected", False, "The server does not accept this request: read what it says."),
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
    500: Remedy("model_failed", True, "Look at the model server's own log, then try again."),
    502: Remedy("model_down", True, "The gateway cannot reach the model: see that it runs, then try again."),
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
UNREADABLE_CALL = "tool_use_failed"  # Groq's code: with 400, as if the request had been at fault
UNREAD = Remedy("model_failed", True, "The model wrote a call that its server cannot read: try again.")


def remedy_for(status: int, said: str) -> Remedy:
    """The row for a status; a prompt that is too long is told apart from other bad requests by what the server says."""
    if status != 429 and is_too_long(said):
        return CONTEXT
    if UNREADABLE_CALL in said:
        return UNREAD
    if status in REMEDIES:
        return REMEDIES[status]
    if 300 <= status < 400:
        return MOVED
    return REMEDIES[500] if status >= 500 else REMEDIES[400]


def excerpt(said: str) -> str:
    """The first 300 characters, on one line."""
    flat = " ".join(said[: EXCERPT * 4].split())
    return flat[:EXCERPT] + ("..." if len(flat) > EXCERPT else "")


def redact_url(url: str) -> str:
    """The URL as it may be shown: without user and password, query and fragment, where keys are kept."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def bad_status(url: str, status: int, said: str, retry_after_s: float | None = None) -> ProviderFailed:
    """The server answered with a status other than 200."""
    row = remedy_for(status, said)
    body = f": {excerpt(said)}" if said.strip() else " and an empty body"
    wait = f" It asks to wait {ceil(retry_after_s)} s." if retry_after_s else ""
    message = f"{redact_url(url)} answered {status}{body}{full_stop(body)} {row.advice}{wait}"
    return provider_failure(row, message, said, 500 if row is UNREAD else status, retry_after_s)


def error_in_stream(url: str, error: Any) -> ProviderFailed:
    """The server put an error object (or a sentence) into its stream."""
    fields = error if isinstance(error, dict) else {"message": error}
    said = str(fields.get("message") or error)
    status = status_of(fields)
    row = remedy_for(status, f"{said} {fields.get('type')} {fields.get('code')}")
    shown = excerpt(said)
    message = f"{redact_url(url)} reported an error in its answer: {shown}{full_stop(shown)} {row.advice}"
    return provider_failure(row, message, f'{said} "n_ctx":{fields.get("n_ctx")}', 500 if row is UNREAD else status)


def provider_failure(
    row: Remedy, message: str, said: str, status: int | None = None, retry_after_s: float | None = None
) -> ProviderFailed:
    """As the row says; for a prompt that is too long with the limit, if the server has named it."""
    window = limit_in(said) if row.code == CONTEXT.code else None
    return ProviderFailed(
        row.code, message, retryable=row.retryable, window=window, status=status, retry_after_s=retry_after_s
    )


def unreachable(url: str, why: str = "") -> ProviderFailed:
    """Nothing accepts the connection."""
    detail = f" ({excerpt(why)})" if why else ""
    advice = "start your server or set DRAGOMAN_MODEL_URL, or its endpoint's url, to another."
    message = f"Nothing listens on {redact_url(url)}{detail}: {advice}"
    return ProviderFailed("model_down", message, retryable=True)


def interrupted(url: str, why: str) -> ProviderFailed:
    """The answer broke off."""
    advice = "Try again; if it stays so, see its log."
    message = f"The answer of {redact_url(url)} broke off: {excerpt(why)}{full_stop(why)} {advice}"
    return ProviderFailed("model_cut", message, retryable=True)


def garbled(url: str, what: str, said: str) -> ProviderFailed:
    """A part of the answer cannot be read."""
    message = f"{redact_url(url)} sent {what}: {excerpt(said)!r}. Try again; if it stays so, see its log."
    return ProviderFailed("model_garbled", message, retryable=True)


def not_a_model(url: str, what: str, said: str) -> ProviderFailed:
    """The answer is not what a model server sends."""
    message = (
        f"{redact_url(url)} sent {what}: {excerpt(said)!r}. "
        "Check that DRAGOMAN_MODEL_URL, or the endpoint's url, is the base URL of a model server, ending in /v1."
    )
    return ProviderFailed("model_garbled", message, retryable=False)


def silent(url: str, seconds: float | None) -> ProviderFailed:
    """Nothing came for longer than the inactivity limit."""
    waited = "too long" if seconds is None else f"{seconds:g} s"
    message = f"{redact_url(url)} sent nothing for {waited}. Look at its log, then try again or allow it more time."
    return ProviderFailed("model_silent", message, retryable=True)


def too_long(url: str, limit: int) -> ProviderFailed:
    """The answer is longer than anything sensible."""
    message = f"The answer of {redact_url(url)} is longer than {limit} bytes and was stopped. Set a limit of tokens."
    return ProviderFailed(ANSWER_TOO_LONG, message, retryable=False)


def full_stop(sentence: str) -> str:
    """The full stop that the sentence still needs."""
    return "" if sentence.endswith((".", "!", "?")) else "."
