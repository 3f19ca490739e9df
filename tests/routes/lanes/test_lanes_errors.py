from __future__ import annotations

import re
from typing import Any

import pytest

from routes.lanes.errors import ERRORS, anthropic_error, failure_of, openai_error
from routes.protocol.errors import Refused, TooSoon
from tests import ROOT

PAGE = (ROOT / "docs/errors.md").read_text()

NEXT_MONTH = 1e11
# code, status of the HTTP API -> status, OpenAI's type and code, param, Anthropic's type
REFUSALS: dict[str, tuple[Refused, int, str, str, str | None, str]] = {
    "a wrong key": (
        Refused(401, "unauthorized", "No."),
        *(401, "invalid_request_error", "invalid_api_key", None, "authentication_error"),
    ),
    "an unknown model": (
        Refused(422, "unknown_model", "No."),
        *(404, "invalid_request_error", "model_not_found", "model", "not_found_error"),
    ),
    "a spent budget": (
        TooSoon("budget", "No.", NEXT_MONTH),
        *(429, "insufficient_quota", "insufficient_quota", None, "rate_limit_error"),
    ),
    "as many runs as a token may have": (
        TooSoon("budget", "No.", 0),
        *(429, "rate_limit_error", "rate_limit_exceeded", None, "rate_limit_error"),
    ),
    "too many requests": (
        TooSoon("too_many_requests", "No.", 0),
        *(429, "rate_limit_error", "rate_limit_exceeded", None, "rate_limit_error"),
    ),
    "another limit": (
        TooSoon("too_many_anything", "No.", 0),
        *(429, "rate_limit_error", "rate_limit_exceeded", None, "rate_limit_error"),
    ),
    "a wrong field": (
        Refused(400, "invalid_request", "No.", param="messages.3.content"),
        *(400, "invalid_request_error", "invalid_request", "messages.3.content", "invalid_request_error"),
    ),
    "a wrong field of ours": (
        Refused(422, "invalid_request", "No."),
        *(400, "invalid_request_error", "invalid_request", None, "invalid_request_error"),
    ),
    "a forbidden route": (
        Refused(403, "forbidden", "No."),
        *(403, "invalid_request_error", "forbidden", None, "permission_error"),
    ),
    "no such route": (
        Refused(404, "not_found", "No."),
        *(404, "invalid_request_error", "not_found", None, "not_found_error"),
    ),
    "a wrong method": (
        Refused(405, "method_not_allowed", "No."),
        *(405, "invalid_request_error", "method_not_allowed", None, "invalid_request_error"),
    ),
    "a long body": (
        Refused(413, "too_long", "No."),
        *(413, "invalid_request_error", "too_long", None, "request_too_large"),
    ),
    "a conflict, which would be asked again": (
        Refused(409, "run_ended", "No."),
        *(400, "invalid_request_error", "run_ended", None, "invalid_request_error"),
    ),
    "a bug": (Refused(500, "internal", "No."), *(500, "server_error", "server_error", None, "api_error")),
    "a paused server": (
        Refused(503, "paused", "No."),
        *(503, "server_error", "server_error", None, "overloaded_error"),
    ),
}


@pytest.mark.parametrize("refused, status, kind, code, param, anthropic", REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_has_the_status_type_and_code_that_clients_know(
    refused: Refused, status: int, kind: str, code: str, param: str | None, anthropic: str
) -> None:
    body = {"error": {"message": "No.", "type": kind, "param": param, "code": code}}
    assert openai_error(refused) == (status, body)
    found = anthropic_error(refused)
    assert found == (
        529 if status == 503 else status,
        {"type": "error", "error": {"type": anthropic, "message": "No."}},
    )


FAILURES = {
    "model_down": (503, "server_error", "overloaded_error"),
    "model_busy": (429, "rate_limit_exceeded", "rate_limit_error"),
    "model_silent": (504, "server_error", "timeout_error"),
    "model_cut": (502, "server_error", "api_error"),
    "model_rejected": (400, "invalid_prompt", "invalid_request_error"),
    "model_auth": (502, "server_error", "api_error"),
    "model_not_found": (404, "model_not_found", "not_found_error"),
    "no_vision": (400, "invalid_prompt", "invalid_request_error"),
    "context_overflow": (400, "context_length_exceeded", "invalid_request_error"),
    "model_context": (400, "context_length_exceeded", "invalid_request_error"),
    "storage_failed": (503, "server_error", "overloaded_error"),
    "interrupted": (500, "server_error", "api_error"),
    "of a later version": (500, "server_error", "api_error"),
}


def failed(code: str, *, retryable: bool = False) -> dict[str, Any]:
    return {"type": "run.failed", "code": code, "message": "The model is down.", "retryable": retryable}


@pytest.mark.parametrize("code, expected", FAILURES.items(), ids=FAILURES)
def test_a_failed_run_has_the_status_and_code_that_clients_know(code: str, expected: tuple[int, str, str]) -> None:
    refused = failure_of(failed(code))
    status, body = openai_error(refused)
    _, other = anthropic_error(refused)
    assert (status, body["error"]["code"], other["error"]["type"]) == expected
    assert refused.status == status or code == "of a later version"


def test_every_code_of_a_failed_run_has_a_row() -> None:
    table = PAGE.partition("<!-- checked: run codes -->")[2].partition("<!-- end of run codes -->")[0]
    codes = re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
    assert len(codes) > 10
    assert set(codes) <= ERRORS.keys()


def test_programs_find_out_that_a_conversation_is_too_long() -> None:
    """opencode, Cline and LangChain look for these words, Claude Code for its own."""
    refused = failure_of(failed("model_context"))
    assert "maximum context length" in openai_error(refused)[1]["error"]["message"]
    assert anthropic_error(refused)[1]["error"]["message"].startswith("prompt is too long: ")


@pytest.mark.parametrize(
    "code, retryable, headers",
    [
        ("model_busy", True, {"Retry-After": "5"}),
        ("model_down", True, None),
        ("model_auth", False, {"x-should-retry": "false"}),
    ],
)
def test_a_client_asks_again_only_where_that_may_help(
    code: str, retryable: bool, headers: dict[str, str] | None
) -> None:
    assert failure_of(failed(code, retryable=retryable)).headers == headers


def test_the_time_of_a_limit_stays() -> None:
    assert TooSoon("budget", "No.", 0).headers == {"Retry-After": "1"}
