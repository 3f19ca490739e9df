"""Unmodified command lines of agents through a whole server of ours, as `dragoman connect` points them at it."""

from __future__ import annotations

import pytest

from tests.clients.commands import COMMANDS, Command
from tests.clients.running_commands import CommandCheck, CommandRuns, job_id, jobs_of, needed

# The first test of each waits for all runs of it, of which each has a limit of its own.
pytestmark = pytest.mark.timeout(1200)
CASES = [
    pytest.param(command, check, model, id=f"{command.name}-{job_id(check, model)}")
    for command in COMMANDS
    for check, model in jobs_of()
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> CommandRuns:
    return CommandRuns(tmp_path_factory.mktemp("commands"))


@pytest.mark.parametrize(("command", "check", "model"), CASES)
def test_a_command_line_does_as_the_model_meant(
    runs: CommandRuns, command: Command, check: CommandCheck, model: str
) -> None:
    needed(command)
    assert runs.of(command)[job_id(check, model)] == []
