"""The quirks of servers for docs/models.md: the bold sentences beside their streams in `fixtures/providers`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from app.models.capabilities.server_profiles import PROFILES, Profile
from tests import ROOT

FIXTURES = ROOT / "fixtures" / "providers"
OTHERS = ("LiteLLM", "llama-cpp-python", "transformers serve")  # servers that no profile is for


def folder_of(name: str) -> Path:
    """Return the folder of a server's streams."""
    return FIXTURES / re.sub(r"\W", "_", name.lower())


def quirks_of(name: str) -> Iterator[tuple[str, str]]:
    """Yield each stream that shows a quirk, with the sentence that says so."""
    for line in (folder_of(name) / "README.md").read_text().splitlines():
        if described := re.fullmatch(r"\| `([^`]+)` \| (.+) \|", line):
            yield from ((described[1], odd) for odd in re.findall(r"\*\*(.+?)\*\*", described[2]))


def quirk_table() -> Iterator[str]:
    yield "| server, recognised by | quirk | recorded stream |"
    yield "|---|---|---|"
    servers = {row.name: f"{row.name}, {_address(row)}" for row in PROFILES} | dict(zip(OTHERS, OTHERS, strict=True))
    for server, shown in servers.items():
        for name, odd in quirks_of(server):
            stream = f"{folder_of(server).name}/{name}"
            yield f"| {shown} | {odd} | [`{stream}`](../fixtures/providers/{stream}) |"


def _address(row: Profile) -> str:
    return f"port {row.port}" if row.port else ", ".join(f"`{host}`" for host in row.hosts)
