"""What is kept from run to run never hides a change: the next run begins with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.models.scripted import Scripted
from tests.support.mcp.served import helper, settled, until_gone, write_list
from tests.support.server.events import of_kind
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
SECRET = "tuesday-violet-39"


class Next(NamedTuple):
    """What a run began with: its first event, and the texts of its request."""

    started: dict[str, Any]
    prompt: str
    messages: str


def has_far(now: Next) -> bool:
    return any(name.startswith("mcp__far__") for name in now.started["tools"])


class Case(NamedTuple):
    change: Callable[[Served, Path, str], Awaitable[object]]
    is_seen: Callable[[Next], bool]


async def write_persona(served: Served, folder: Path, session: str) -> None:
    persona = folder / "data" / "persona" / "local"
    persona.mkdir(parents=True)
    (persona / "SOUL.md").write_text("You are Iris.")


async def disable(served: Served, folder: Path, session: str) -> None:
    answer = await served.client.patch(f"/sessions/{session}", json={"disabled_tools": ["bash"]})
    assert answer.status_code == 200, answer.text


async def set_profile(served: Served, folder: Path, session: str) -> None:
    body = {"prompt": "Answer in verse.", "disabled": ["python"]}
    assert (await served.client.put("/profiles/poet", json=body)).status_code < 300
    assert (await served.client.patch(f"/sessions/{session}", json={"profile": "poet"})).status_code == 200


async def change_profile(served: Served, folder: Path, session: str) -> None:
    assert (await served.client.put("/profiles/poet", json={"prompt": "Answer in prose."})).status_code < 300


async def set_options(served: Served, folder: Path, session: str) -> None:
    answer = await served.client.patch(f"/sessions/{session}", json={"options": {"approval": "ask"}})
    assert answer.status_code == 200, answer.text


async def change_settings(served: Served, folder: Path, session: str) -> None:
    answer = await served.client.patch("/settings", json={"changes": {"max_rounds": 7}})
    assert answer.status_code == 200, answer.text


async def learn_secret(served: Served, folder: Path, session: str) -> None:
    served.services.redactor.add(SECRET)


async def accept_project(served: Served, folder: Path, session: str) -> None:
    (folder / "work/AGENTS.md").write_text("Use tabs.")
    [file] = (await served.client.get("/project")).json()["files"]
    body = {"path": "AGENTS.md", "digest": file["digest"], "decision": "accept"}
    assert (await served.client.post("/project", json=body)).status_code == 200


async def change_project(served: Served, folder: Path, session: str) -> None:
    (folder / "work/AGENTS.md").write_text("Use tabs. This is not accepted.")


async def add_server(served: Served, folder: Path, session: str) -> None:
    write_list(folder, far=helper())
    await settled(served, "far")


async def remove_server(served: Served, folder: Path, session: str) -> None:
    write_list(folder)
    await until_gone(served, "far")


CASES = {  # each after those before it
    "the persona": Case(write_persona, lambda now: "You are Iris." in now.prompt),
    "the session's tools": Case(disable, lambda now: "bash" not in now.started["tools"]),
    "a profile": Case(
        set_profile, lambda now: "Answer in verse." in now.prompt and "python" not in now.started["tools"]
    ),
    "what the profile says": Case(
        change_profile, lambda now: "Answer in prose." in now.prompt and "python" in now.started["tools"]
    ),
    "the session's options": Case(set_options, lambda now: now.started["limits"]["approval"] == "ask"),
    "the settings": Case(change_settings, lambda now: now.started["limits"]["max_rounds"] == 7),
    "a project's instructions": Case(accept_project, lambda now: "Use tabs." in now.prompt),
    "the same, changed": Case(change_project, lambda now: "Use tabs." not in now.prompt),
    "an MCP server": Case(add_server, has_far),
    "the same, removed": Case(remove_server, lambda now: not has_far(now)),
    "a secret in an earlier message": Case(
        learn_secret, lambda now: SECRET not in now.messages and "[redacted]" in now.messages
    ),
}


async def test_the_next_run_begins_with_each_change(tmp_path: Path) -> None:
    model = Scripted(["Good."], repeat=True)
    async with serving(tmp_path, model) as served:
        session = (await served.chat(f"It is called {SECRET}."))[0]["session"]

        async def next_run() -> Next:
            started, *_ = await served.chat("And now?", session=session)
            request = model.requests[-1]
            return Next(started, request.opening()[0].text, "\n".join(one.text for one in request.messages))

        for name, case in CASES.items():
            assert not case.is_seen(await next_run()), f"{name}: as it was"
            await case.change(served, tmp_path, session)
            assert case.is_seen(await next_run()), name


FILES = {
    "data/persona/local/SOUL.md": "You are Iris.",
    "data/skills/roses/SKILL.md": "---\nname: roses\ndescription: How to cut roses.\n---\nIn March.",
    "work/AGENTS.md": "Use tabs.",
    "work/.agents/skills/tulips/SKILL.md": "---\nname: tulips\ndescription: How to plant.\n---\nIn autumn.",
}


async def test_the_first_file_of_each_kind_is_seen(tmp_path: Path) -> None:
    model = Scripted(["Good."], repeat=True)
    async with asyncio.timeout(60), serving(tmp_path, model) as served:

        async def is_seen() -> bool:
            notices = of_kind(await served.chat(), "notice")
            prompt = model.requests[-1].opening()[0].text
            return "Iris" in prompt or "roses" in prompt or any(one["code"] == "project_files" for one in notices)

        for path, text in FILES.items():
            assert not await is_seen(), f"{path}: not there yet"
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
            assert await is_seen(), path
            (tmp_path / path).unlink()
            with suppress(OSError):  # its folder is the workspace
                (tmp_path / path).parent.rmdir()


async def test_a_pause_stops_the_next_run(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Good."], repeat=True)) as served:
        session = (await served.chat())[0]["session"]
        await served.client.post("/pause", json={})
        assert (await served.client.post("/chat", json={"message": "x", "session": session})).status_code == 503
        await served.client.post("/resume", json={})
        assert (await served.chat("x", session=session))[-1]["type"] == "run.finished"
