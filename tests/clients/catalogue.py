"""The clients, a row each."""

from __future__ import annotations

from tests.clients.harness import Client

TOOLS_AND_LENGTH = "it raises LengthFinishReasonError where tools are offered"

PYTHON_CLIENTS = (
    Client(
        "openai",
        "openai",
        "openai_client",
        ("chat", "chat-stream", "chat-helper", "responses", "responses-stream", "responses-helper"),
        {"chat-helper length": TOOLS_AND_LENGTH, "chat-helper cut-call": TOOLS_AND_LENGTH},
    ),
)
