"""Each channel: what its receiver gets, and that it is a webhook in all else."""

from __future__ import annotations

import json
from email.header import decode_header, make_header
from pathlib import Path

import pytest

from app.notifications.channel import WEBHOOKS, Channel
from app.notifications.channels import CHANNELS
from app.notifications.service import TargetForbidden
from app.storage.labels import SessionLabel
from app.storage.notices.notifications import DELIVERED, TargetRow
from app.storage.principals import LOCAL_USER
from app.storage.sessions import SessionRow
from tests import ROOT
from tests.support.notifications import ENDED, WAITS, notifying_server
from tests.support.server.receivers import receiver

pytestmark = pytest.mark.anyio

SERVER = "https://agent.example.org"
CHOSEN = [row for row in CHANNELS.values() if row.family is WEBHOOKS]


@pytest.mark.parametrize("channel", CHOSEN, ids=lambda row: row.kind)
async def test_a_channel_delivers_repeats_and_is_documented(channel: Channel, tmp_path: Path) -> None:
    kind = channel.kind
    async with receiver(200, 503, headers="retry-after: 60\r\n") as there, notifying_server(tmp_path) as one:
        hook = await one.hook(there.url, channel=kind)
        await one.happens(ENDED)
        await one.clock.next_sleep()
        first, second = await there.got(2)
        assert (await one.row(hook, DELIVERED)).attempts == 2
        assert first.body == second.body
        assert [row.id for row in one.notifications.targets.of(LOCAL_USER.name, WEBHOOKS)] == [hook.id]
        await one.notifications.remove(hook, LOCAL_USER)
        assert not one.notifications.targets.of(LOCAL_USER.name, WEBHOOKS)
    assert f"\n| `{kind}` |" in (ROOT / "docs" / "notifications.md").read_text()


async def test_a_topic_of_ntfy_gets_a_title_and_a_link(tmp_path: Path) -> None:
    async with receiver() as there, notifying_server(tmp_path, public_url=SERVER) as one:
        await one.store.write([SessionRow("ses_local", LOCAL_USER.name, 1.0, "Grüße\nan Bob")])
        await one.hook(there.url, channel="ntfy")
        await one.happens(WAITS, ENDED)
        requests = {request.headers["title"]: request for request in await there.got(2)}
        asked, ended = requests["A call waits for approval"], requests["A run has ended (answered)"]
        assert [one.headers["priority"] for one in (asked, ended)] == ["high", "default"]
        assert asked.body.decode() == "Grüße an Bob"
        assert asked.headers["click"] == f"{SERVER}/#ses_local/run_1/call=call_1"
        assert "content-type" not in asked.headers and "webhook-signature" not in asked.headers


async def test_a_link_beyond_ascii_is_encoded(tmp_path: Path) -> None:
    async with receiver() as there, notifying_server(tmp_path, public_url="https://bücher.example/ä b") as one:
        await one.hook(there.url, channel="ntfy")
        await one.happens(ENDED)
        [request] = await there.got(1)
        assert request.headers["click"] == "https://xn--bcher-kva.example/%C3%A4%20b/#ses_local"


async def test_what_no_header_can_have_is_a_failed_attempt_that_holds_nothing_up(tmp_path: Path) -> None:
    async with receiver() as there, notifying_server(tmp_path) as one:
        attempt = await one.notifications.sender.post(there.url, {"X-Any": "ü"}, b"")
        assert not attempt.ok and "the request failed" in attempt.error


async def test_a_title_beyond_ascii_is_one_header(tmp_path: Path) -> None:
    """A webhook of this name was disabled: names are text of a person."""
    name = "Ünïcode " * 20
    async with receiver() as there, notifying_server(tmp_path) as one:
        await one.hook(there.url, channel="ntfy")
        one.notifications.outbox.target_disabled("whk_1", LOCAL_USER.name, f"{name}\r\nPriority: max")
        [request] = await there.got(1)
        shown = str(make_header(decode_header(request.headers["title"])))
        assert shown == f"A webhook was disabled ({' '.join(name.split())} Priority: max)"
        assert request.headers["priority"] == "default"


async def test_a_labelled_conversation_is_not_named_in_any_channel(tmp_path: Path) -> None:
    async with receiver() as there, notifying_server(tmp_path) as one:
        await one.store.write(
            [
                SessionRow("ses_local", LOCAL_USER.name, 1.0, "A title"),
                SessionLabel("ses_local", "secret", "mark", "", "", 1.0),
            ]
        )
        for channel in CHOSEN:
            await one.hook(there.url, channel=channel.kind)
        await one.happens(ENDED)
        assert not any(b"A title" in request.body for request in await there.got(len(CHOSEN)))


async def test_what_is_not_signed_has_no_secret(tmp_path: Path) -> None:
    async with receiver() as there, notifying_server(tmp_path) as one:
        hook = await one.hook(there.url, channel="ntfy")
        with pytest.raises(TargetForbidden, match="no secret"):
            await one.notifications.new_secret(hook, LOCAL_USER)


async def test_a_channel_of_a_newer_server_is_left_alone(tmp_path: Path) -> None:
    """Who goes back to this version keeps the row, and nothing else breaks."""
    row = TargetRow(
        "whk_9",
        principal=LOCAL_USER.name,
        kind="pigeon",
        name="coo",
        url="https://example.org/",
        events=json.dumps(["run.ended"]),
        everyone=False,
        version=1,
        keys="{}",
        created=1.0,
    )
    async with notifying_server(tmp_path) as one:
        await one.store.write([row])
        await one.notifications.targets.load()
        assert not list(one.notifications.targets)
        await one.happens(ENDED)
        assert await one.store.notification_targets() == [row]
