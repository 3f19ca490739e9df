"""What `dragoman connect` prints, as the pages of docs/clients/ show it."""

from __future__ import annotations

from collections.abc import Iterator

from routes.cli.programs import PROGRAMS

URL, MODEL = "http://localhost:8724", "dragoman/agent"
BY_NAME = {program.name: program for program in PROGRAMS}
PROGRAM_NAMES = tuple(BY_NAME)


def connect_lines(name: str) -> Iterator[str]:
    for block in BY_NAME[name].shown(URL, MODEL):
        yield from (block.lead, "", f"```{block.language}", *block.text.splitlines(), "```", "")
