"""The quirks of servers for docs/models.md: the bold sentences beside their streams in `fixtures/providers`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from app.models.capabilities.server_profiles import PROFILES, Profile
from tests import ROOT

FIXTURES = ROOT / "fixtures" / "providers"


def folder_of(row: Profile) -> Path:
    """Return the folder of a server's streams."""
    return FIXTURES / row.name.lower().replace(".", "_").replace(" ", "_")


def quirks_of(row: Profile) -> Iterator[tuple[str, str]]:
    """Yield each stream that shows a quirk, with the sentence that says so."""
    for line in (folder_of(row) / "README.md").read_text().splitlines():
        if described := re.fullmatch(r"\| `([^`]+)` \| (.+) \|", line):
            yield from ((described[1], odd) for odd in re.findall(r"\*\*(.+?)\*\*", described[2]))


def quirk_table() -> Iterator[str]:
    yield "| server, recognised by | quirk | recorded stream |"
    yield "|---|---|---|"
    for row in PROFILES:
        for name, odd in quirks_of(row):
            stream = f"{folder_of(row).name}/{name}"
            yield f"| {row.name}, {_address(row)} | {odd} | [`{stream}`](../fixtures/providers/{stream}) |"


def _address(row: Profile) -> str:
    return f"port {row.port}" if row.port else ", ".join(f"`{host}`" for host in row.hosts)
