"""The reason in a model server's error body: its words, and not the JSON or HTML around them."""

from __future__ import annotations

import pytest

from app.models.http.failures import bad_status, reason_in
from tests.support.models.answers import FIXTURES

BODIES = {
    "openai": (
        '{"error": {"message": "Incorrect API key provided.", "type": "invalid_request_error"}}',
        "Incorrect API key provided.",
    ),
    "anthropic": ('{"type": "error", "error": {"type": "x", "message": "Overloaded"}}', "Overloaded"),
    "gemini": ('[{"error": {"code": 400, "message": "API key not valid."}}]', "API key not valid."),
    "ollama": ('{"error": "model \'x\' not found"}', "model 'x' not found"),
    "vllm": ('{"object": "error", "message": "The model does not exist.", "code": 404}', "The model does not exist."),
    "fastapi": ('{"detail": [{"loc": ["body"], "msg": "field required"}]}', "field required"),
    "fastapi, a word": ('{"detail": "Not Found"}', "Not Found"),
    "an html page": (
        "<html><title>502 Bad&nbsp;Gateway</title><body>x</body></html>",
        "502 Bad\xa0Gateway",
    ),
    "html without a title": ("<html><body>x</body></html>", "an HTML page"),
    "text": ("  upstream connect error ", "upstream connect error"),
    "json without words": ('{"code": 7}', '{"code": 7}'),
    "an empty message": ('{"error": {"message": ""}}', '{"error": {"message": ""}}'),
    "half of it": ('{"error": {"mess', '{"error": {"mess'),
    "too deep": ("[" * 100_000, "[" * 100_000),
    "a number": ("17", "17"),
    "nothing": (" \n", ""),
}


@pytest.mark.parametrize(("body", "reason"), BODIES.values(), ids=BODIES)
def test_the_reason_is_what_the_server_says_and_not_its_json(body: str, reason: str) -> None:
    assert reason_in(body) == reason


def test_an_error_has_the_status_the_reason_and_what_to_do() -> None:
    failure = bad_status("https://user:secret@host/v1", 401, BODIES["openai"][0])
    assert failure.message == (
        "https://host/v1 answered 401: Incorrect API key provided. "
        "Set DRAGOMAN_MODEL_KEY, or the endpoint's own key, to one that is accepted."
    )
    assert "and an empty body" in bad_status("http://host", 500, "").message


@pytest.mark.parametrize(("server", "status"), [("vllm", 404), ("litellm", 400), ("transformers_serve", 400)])
def test_a_model_that_is_not_served_is_told_from_a_bad_request(server: str, status: int) -> None:
    """Another model may answer then, whatever status a server sends."""
    failure = bad_status("http://host", status, (FIXTURES / server / "no_such_model.json").read_text())
    assert (failure.code, failure.status, f"answered {status}" in failure.message) == ("model_not_found", 404, True)
