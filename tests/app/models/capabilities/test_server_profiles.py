"""The servers that people use: each quirk is a row of data, a stream that shows it, and a line for people."""

from __future__ import annotations

import pytest

from app.models.capabilities.server_profiles import PROFILES, Profile, Quirk
from tests import ROOT

FIXTURES = ROOT / "fixtures" / "providers"
QUIRKS = [(row, quirk) for row in PROFILES for quirk in row.quirks]


@pytest.mark.parametrize(("row", "quirk"), QUIRKS, ids=lambda value: getattr(value, "stream", None) or value.name)
def test_each_quirk_has_a_stream_that_says_so(row: Profile, quirk: Quirk) -> None:
    odd, stream = quirk.odd, quirk.stream
    assert (FIXTURES / row.folder / stream).is_file()
    described = (FIXTURES / row.folder / "README.md").read_text().splitlines()
    assert any(line.startswith(f"| `{stream}` | ") and odd in line for line in described), odd


def test_every_server_has_a_quirk_and_an_address_of_its_own() -> None:
    assert all(row.quirks for row in PROFILES)
    addresses = [address for row in PROFILES for address in (*row.hosts, row.port) if address]
    assert len(addresses) == len(set(addresses)) and all(row.hosts or row.port for row in PROFILES)
