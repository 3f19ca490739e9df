"""Transcripts of other programs, for tests: real ones, and records of Claude Code."""

from __future__ import annotations

import base64
import json
from typing import Any

from tests import ROOT
from tests.support.models.pictures import png
from tests.support.server.serving import Served

TRANSCRIPTS = ROOT / "fixtures/transcripts"
REAL = {"claude": "claude.jsonl", "codex": "codex.jsonl", "opencode": "opencode.json"}


async def imported(served: Served, kind: str, data: bytes | str) -> dict[str, Any]:
    answer = await served.client.post(f"/sessions/import?format={kind}", content=data)
    assert answer.status_code == 200, answer.text
    done: dict[str, Any] = answer.json()
    return done


async def one_of(served: Served, kind: str, data: bytes | str) -> tuple[str, str]:
    """The session of a transcript, and what has become of it."""
    [one] = (await imported(served, kind, data))["sessions"]
    return one["session"], one["state"]


async def messages(served: Served, session: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await served.client.get(f"/sessions/{session}")).json()["messages"]
    return found


def lines(*records: object) -> str:
    return "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in records)


def claude(role: str, content: object, **more: object) -> dict[str, Any]:
    about = {"sessionId": "s1", "timestamp": "2026-11-30T03:18:03Z", "isSidechain": False}
    return {"type": role, "message": {"role": role, "content": content, "model": "opus"}} | about | more


def use(call: str, name: str = "Bash", **arguments: object) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


def result(call: str, content: object, *, is_error: bool = False) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": content, "is_error": is_error}


def picture() -> dict[str, Any]:
    data = base64.b64encode(png(4, 3)).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
