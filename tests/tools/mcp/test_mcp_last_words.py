"""What an MCP server wrote last: why it ended, and the key that it asks for."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from tests.support.mcp.faulty_servers import START_S, managing
from tools.mcp.connection.failure_reasons import last_words, request_for_key
from tools.mcp.model import Hooks, McpEvent, ServerChanged, ServerConfig, ServerState

pytestmark = pytest.mark.anyio

NODE = ("    at Module._compile (node:internal/modules:1:2)", "", "Node.js v22.1.0")
ASKS = "Error: BRAVE_API_KEY environment variable is required"
# The end of its stderr, the line that says best why it ended, and whether that asks for a key.
WORDS: dict[str, tuple[Sequence[str], str, bool]] = {
    "nothing": ((), "", False),
    "a key, then a stack": ((ASKS, *NODE), ASKS, True),
    "a key, then a hint": (("ASANA_TOKEN must be set.", "Usage: server [options]"), "ASANA_TOKEN must be set.", True),
    "no key by name": (
        ("Required environment variables are missing.",),
        "Required environment variables are missing.",
        True,
    ),
    "an api key": (("No API key found in the settings", "bye"), "No API key found in the settings", True),
    "credentials": (("Please provide credentials",), "Please provide credentials", True),
    "another error": (("starting", "Error: port 80 is taken", *NODE), "Error: port 80 is taken", False),
    "no error at all": (("starting", "bye", ""), "bye", False),
    "a key that is there": (("Using GITHUB_TOKEN of the environment",), "Using GITHUB_TOKEN of the environment", False),
}
# Says it on stderr, answers the handshake, and has nothing to offer.
EMPTY = f"""
import json, sys
print({ASKS!r}, file=sys.stderr, flush=True)
for text in sys.stdin:
    asked = json.loads(text)
    answers = {{
        "initialize": {{
            "protocolVersion": "2025-06-18",
            "capabilities": {{"tools": {{}}}},
            "serverInfo": {{"name": "s", "version": "1"}},
        }},
        "tools/list": {{"tools": []}},
    }}
    if "id" in asked:
        result = answers.get(asked["method"])
        said = {{"result": result}} if result else {{"error": {{"code": -32601, "message": "unknown"}}}}
        print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], **said}}), flush=True)
"""
ENDS = f"import sys; print({ASKS!r}, file=sys.stderr); print('    at main (x.js:1:1)', file=sys.stderr); sys.exit(1)"


@pytest.mark.parametrize(("tail", "words", "asks"), WORDS.values(), ids=WORDS)
def test_the_line_that_says_most(tail: Sequence[str], words: str, asks: bool) -> None:
    assert (last_words(tail), request_for_key(tail)) == (words, words if asks else "")


def python(code: str) -> ServerConfig:
    return ServerConfig("s", command=sys.executable, args=("-c", code))


async def test_a_server_that_ended_says_why_until_it_is_connected() -> None:
    seen: list[tuple[ServerState, str]] = []

    def keep(event: McpEvent) -> None:
        if isinstance(event, ServerChanged):
            seen.append((event.status.state, event.status.error))

    async with managing(python(ENDS), hooks=Hooks(on_event=keep)) as manager:
        status = await manager.settled("s", START_S)
    assert status.state is ServerState.FAILED and status.error == f"it ended with exit code 1; it wrote: {ASKS}"
    first = seen.index((ServerState.FAILED, status.error))
    later = [error for state, error in seen[first:] if state is not ServerState.STOPPED]
    assert ServerState.CONNECTING in {state for state, _ in seen[first:]} and set(later) == {status.error}


async def test_a_server_without_tools_says_what_it_asks_for() -> None:
    async with managing(python(EMPTY)) as manager:
        status = await manager.settled("s", START_S)
    assert (status.state, status.error, status.tools) == (ServerState.READY, "", ())
    assert status.notes == (f"It has no tools; it wrote: {ASKS}",)
