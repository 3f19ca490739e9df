"""The servers that people use: each quirk is a sentence for people, beside a stream that shows it."""

from __future__ import annotations

import pytest

from app.models.capabilities.server_profiles import PROFILES, Profile
from tests.support.documented.servers import folder_of, quirks_of


@pytest.mark.parametrize("row", PROFILES, ids=lambda row: row.name)
def test_every_server_has_quirks_with_a_stream_that_shows_each(row: Profile) -> None:
    streams = [stream for stream, _ in quirks_of(row.name)]
    assert streams and all((folder_of(row.name) / stream).is_file() for stream in streams)


def test_every_server_has_an_address_of_its_own() -> None:
    addresses = [address for row in PROFILES for address in (*row.hosts, row.port) if address]
    assert len(addresses) == len(set(addresses)) and all(row.hosts or row.port for row in PROFILES)
