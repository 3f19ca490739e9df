"""Addresses that notifications are sent to: public ones, and private ones that the operator allows."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from app.notifications.sender import Sender, UnfitUrl
from tests.support.server.receivers import receiver

pytestmark = pytest.mark.anyio

REFUSED = (
    "http://example.org/",  # not https
    "https://10.0.0.1/",
    "https://[::1]/",
    "https://169.254.169.254/latest",
    "https://192.168.1.1:443/",
    "https://0177.0.0.1/",
    "https://user:password@example.org/",
    "ftp://example.org/",
    "https://example.org:22/",
    "https://nowhere.invalid/",
    "https://" + "a" * 3000 + ".example.org/",
    "not a url",
)


@pytest.mark.parametrize("url", REFUSED)
async def test_only_public_addresses_are_sent_to(url: str) -> None:
    public = {"example.org": "93.184.216.34"}

    async def resolve(host: str, _port: int) -> list[object]:
        if host not in public:
            raise OSError("unknown")
        return [ip_address(public[host])]

    sender = Sender((), resolve=resolve)  # type: ignore[arg-type]
    with pytest.raises(UnfitUrl):
        await sender.check(url)
    assert (await sender.check("https://example.org/in"))[1] == (ip_address("93.184.216.34"),)
    attempt = await sender.post(url, {}, b"")
    assert (attempt.ok, attempt.status) == (False, None), "and is checked again when it is sent to"


async def test_the_own_port_is_never_reached() -> None:
    async with receiver() as there:
        with pytest.raises(UnfitUrl):
            await Sender(("127.0.0.1",), (there.port,)).check(there.url)


async def test_a_name_that_moves_to_a_private_address_is_not_followed() -> None:
    """It is looked up once for each request, and the address that was checked is the one that is connected to."""
    found = [ip_address("93.184.216.34"), ip_address("127.0.0.1")]
    looked = []

    async def resolve(_host: str, _port: int) -> list[object]:
        looked.append(found.pop(0))
        return [looked[-1]]

    async with receiver() as there:
        sender = Sender((), resolve=resolve)  # type: ignore[arg-type]
        url = f"https://example.org:{there.port}/"
        await sender.check(url)
        attempt = await sender.post(url, {}, b"")
        assert (attempt.status, len(looked)) == (None, 2)
        assert "private_hosts" in attempt.error and not there.requests
