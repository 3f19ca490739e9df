"""Codex has its conversation compacted by the server: it wants exactly one item back, and goes on with that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.clients.commands import COMMANDS
from tests.clients.harness import dragoman
from tests.clients.running_commands import CommandCheck, job_id, needed, run
from tests.clients.scenarios import COMMAND, CONDENSED

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
FLAGS = "-c model_auto_compact_token_limit=50000 -c 'model_providers.dragoman.capabilities={remote_compaction=\"v2\"}'"
CODEX = next(command for command in COMMANDS if command.name == "codex")
CHECK = CommandCheck("condensed", "condensed")


@pytest.mark.parametrize("model", ["hermes", "dragoman/hermes"])
async def test_codex_goes_on_behind_a_compaction(tmp_path: Path, model: str) -> None:
    needed(CODEX)
    (tmp_path / "work").mkdir()
    async with dragoman(tmp_path, model="quay/hermes") as target:
        ended = await run(replace(CODEX, words=f"{CODEX.words} {FLAGS}"), CHECK, model, target, tmp_path)
        bodies = target.model.bodies[job_id(CHECK, model)]
    assert ended.code == 0, ended.stderr[-2000:]
    output = CODEX.read(ended.stdout, ended.work)
    assert output.texts == ["It goes on behind the notes."]
    assert output.commands is not None and len(output.commands) == 1 and COMMAND in output.commands[0]
    first, notes, last = ([str(message["content"]) for message in body["messages"]] for body in bodies)
    assert "are about to be removed" in notes[-1]
    assert CONDENSED in "".join(last) and CONDENSED not in "".join([*first, *notes])
