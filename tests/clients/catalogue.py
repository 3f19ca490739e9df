"""The clients, a row each."""

from __future__ import annotations

from tests.clients.harness import Client

TOOLS_AND_LENGTH = "it raises LengthFinishReasonError where tools are offered"
PARSED = "it raises an error where what was cut is to be parsed"
INCOMPLETE = "it raises ModelBehaviorError where an answer is incomplete"
NO_THOUGHTS = "it does not show the reasoning"
COMPLETED = "of the ends of a stream it reads response.completed alone"
CHAT = ("chat", "chat-stream")
RESPONSES = ("responses", "responses-stream")

PYTHON_CLIENTS = (
    Client(
        "openai",
        "openai",
        "openai_client",
        ("chat", "chat-stream", "chat-helper", "responses", "responses-stream", "responses-helper"),
        {"chat-helper length": TOOLS_AND_LENGTH, "chat-helper cut-call": TOOLS_AND_LENGTH},
        ("responses", "responses-stream", "responses-helper"),
    ),
    Client("anthropic", "anthropic", "anthropic_client", ("messages", "messages-stream", "messages-helper"), {}),
    Client(
        "langchain",
        "langchain",
        "langchain_client",
        ("chat", "chat-stream", "responses", "responses-stream"),
        {f"{way} {check}": NO_THOUGHTS for way in CHAT for check in ("thoughts", "considered")},
        daily=False,
    ),
    Client(
        "pydantic-ai",
        "pydantic-ai",
        "pydantic_ai_client",
        ("chat", "chat-stream", "responses", "responses-stream", "messages", "messages-stream"),
        {},
        daily=False,
    ),
    Client(
        "openai-agents",
        "openai-agents",
        "agents_client",
        ("chat", "chat-stream", "responses", "responses-stream"),
        {f"{way} {check}": INCOMPLETE for way in RESPONSES for check in ("length", "cut-call")},
        daily=False,
    ),
    Client(
        "llm",
        "llm",
        "llm_client",
        ("chat", "chat-stream", "responses", "responses-stream"),
        {
            **{"thoughts": NO_THOUGHTS, "considered": NO_THOUGHTS},
            **{f"{RESPONSES[1]} {check}": COMPLETED for check in ("length", "cut-call", "failure", "break")},
        },
        daily=False,
    ),
)

JAVASCRIPT_CLIENTS = (
    Client(
        "openai-js",
        "sdk",
        "openai_client.mjs",
        (
            *("chat", "chat-stream", "chat-helper", "chat-runner"),
            *("responses", "responses-stream", "responses-helper"),
        ),
        {"chat-runner length": PARSED, "chat-runner cut-call": PARSED},
    ),
    Client(
        "ai",
        "sdk",
        "ai_client.mjs",
        tuple(
            f"{provider}{manner}"
            for provider in ("chat-compatible", "chat-openai", "responses-openai", "messages-anthropic")
            for manner in ("", "-stream")
        ),
        {
            f"chat-openai{manner} {check}": NO_THOUGHTS
            for manner in ("", "-stream")
            for check in ("thoughts", "considered")
        },
    ),
    Client("ag-ui", "sdk", "agui_client.mjs", ("agui",), {}, ("agui",)),
    Client("ui", "sdk", "ui_client.mjs", ("ui",), {}, ("ui",)),
)
CLIENTS = PYTHON_CLIENTS + JAVASCRIPT_CLIENTS
