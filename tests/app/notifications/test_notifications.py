"""Deliveries of notifications to real receivers: signed, repeated, bounded, and to their owner only."""

from __future__ import annotations

import asyncio
import json
import stat
from base64 import b64decode
from ipaddress import ip_address
from itertools import count
from pathlib import Path

import pytest

from app.core.events import ApprovalRequired, Notice
from app.notifications.backoff import DISABLED_AFTER_S, LONGEST_S, MOST_ATTEMPTS, delay_s
from app.notifications.channel import WEBHOOKS
from app.notifications.key_files import KeyFiles
from app.notifications.kinds import KINDS
from app.notifications.outbox import LATE_S
from app.notifications.sender import Sender
from app.notifications.service import TargetDisabled, TargetForbidden, TooManyTargets
from app.notifications.signing import signed_headers
from app.notifications.targets import MOST_PENDING
from app.policy.entitlements import NotEntitled
from app.storage.labels import SessionLabel
from app.storage.principals import LOCAL_USER, Principal
from app.transcript.run_request import HELPER, NotFound
from tests.support.notifications import ENDED, WAITS, notifying_server
from tests.support.server.receivers import HANG, HUGE, ManualClock, receiver, until, verified
from tools.base.rights import Role
from tools.jobs.records import FollowUp, Job, JobState

pytestmark = pytest.mark.anyio

LEAKED = Notice("canary", "It leaked.")


def job(ended: float, principal: str = LOCAL_USER.name) -> Job:
    return Job("job_1", "ses_local", principal, "make", 1.0, 60, FollowUp.OFF, JobState.EXITED, ended=ended)


async def test_each_event_is_signed_and_says_little(tmp_path: Path) -> None:
    async with receiver() as there, notifying_server(tmp_path, public_url="https://agent.example.org") as one:
        hook = await one.hook(there.url)
        secret = one.notifications.secret(hook)
        await one.happens(ENDED, run="run_helper", policy=json.dumps({HELPER: True}))
        await one.happens(WAITS, LEAKED, Notice("retry", "not for receivers"), ENDED)
        one.notifications.outbox.job_ended(job(one.clock.now()))
        requests = await there.got(4)
        assert all(verified(request, secret) for request in requests)
        assert not verified(requests[0], "whsec_" + "A" * 43 + "=")
        bodies = {body["type"]: body["data"] for body in (json.loads(request.body) for request in requests)}
        link = {"session": "ses_local", "title": "A title", "link": "https://agent.example.org/#ses_local"}
        assert bodies == {
            "approval.required": {"run": "run_1", "call": "call_1"}
            | link
            | {"link": f"{link['link']}/run_1/call=call_1"},
            "canary.fired": {"run": "run_1"} | link,
            "run.ended": {"run": "run_1", "reason": "answered"} | link,
            "job.ended": {"job": "job_1", "state": "exited"} | link,
        }
        assert len({request.headers["webhook-id"] for request in requests}) == 4


def test_a_signature_is_that_of_the_specification() -> None:
    """The example in the specification's own libraries; the package standardwebhooks verifies it."""
    headers = signed_headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        b'{"test": 2432232314}',
        b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_a_failure_is_repeated_with_the_same_id(tmp_path: Path) -> None:
    async with receiver(200, 500, 503, headers="retry-after: 60\r\n") as there, notifying_server(tmp_path) as one:
        hook = await one.hook(there.url)
        await one.happens(ENDED)
        slept = [await one.clock.next_sleep() for _ in range(2)]
        first, second, third = await there.got(3)
        assert slept == [60.0, 60.0], "as the receiver asks for"
        assert first.headers["webhook-id"] == second.headers["webhook-id"] == third.headers["webhook-id"]
        times = [int(request.headers["webhook-timestamp"]) for request in (first, second, third)]
        assert times[1] - times[0] == times[2] - times[1] == 60
        assert all(verified(request, one.notifications.secret(hook)) for request in there.requests)
        row = await one.row(hook, "delivered")
        assert (row.attempts, row.status, row.error) == (3, 200, "")
        await until(lambda: one.notifications.targets.get(hook.id).failing is None)  # type: ignore[union-attr]


def test_delays_grow_up_to_a_limit() -> None:
    longest = [delay_s(attempts, 1.0) for attempts in range(1, MOST_ATTEMPTS)]
    assert longest[:4] == [5.0, 20.0, 80.0, 320.0]
    assert max(longest) == LONGEST_S
    assert [delay_s(attempts, 0.0) for attempts in range(1, MOST_ATTEMPTS)] == [one / 2 for one in longest]
    assert delay_s(1, 1.0, asked_s=1e9) == LONGEST_S


FAULTS = {HANG: "no answer", HUGE: "", 302: "redirects", 404: "404", 500: "500"}


@pytest.mark.parametrize("status", FAULTS)
async def test_a_bad_receiver_costs_one_bounded_attempt(tmp_path: Path, status: int) -> None:
    async with receiver() as elsewhere, receiver(status, headers=f"location: {elsewhere.url}\r\n") as there:
        async with notifying_server(tmp_path, limit_s=2.0 if status == HANG else 10.0) as one:
            hook = await one.hook(there.url)
            await one.happens(ENDED)
            await there.got(1)
            if status == HUGE:
                assert (await one.row(hook, "delivered")).attempts == 1
                return
            await one.clock.next_sleep()
            await there.got(2)
            row = await one.row(hook, "pending")
            assert FAULTS[status] in row.error
            assert not elsewhere.requests, "a redirect is not followed"


async def test_a_slow_receiver_delays_no_other(tmp_path: Path) -> None:
    async with receiver(HANG) as slow, receiver() as quick, notifying_server(tmp_path) as one:
        await one.hook(slow.url)
        fast = await one.hook(quick.url)
        await one.happens(ENDED)
        await slow.got(1)
        assert (await one.row(fast, "delivered")).attempts == 1


async def test_a_dead_delivery_can_be_retried(tmp_path: Path) -> None:
    async with receiver(500) as there, notifying_server(tmp_path) as one:
        hook = await one.hook(there.url)
        await one.happens(ENDED)
        for _ in range(MOST_ATTEMPTS - 1):
            await one.clock.next_sleep()
        row = await one.row(hook, "dead")
        assert (row.attempts, row.finished is not None) == (MOST_ATTEMPTS, True)
        there.usual = 204
        await one.notifications.retry(hook, row.id)
        assert (await one.row(hook, "delivered")).id == row.id
        assert {request.headers["webhook-id"] for request in there.requests} == {row.id}
        with pytest.raises(NotFound):
            await one.notifications.retry(hook, "msg_none")


async def test_a_target_that_fails_for_days_is_disabled_with_notice(tmp_path: Path) -> None:
    """Each attempt of these days: one failure, and a server that was off until now, do not disable it."""
    async with receiver(500) as there, receiver() as other, notifying_server(tmp_path) as one:
        hook = await one.hook(there.url, "run.ended")
        await one.hook(other.url, "endpoint.disabled")
        await one.happens(ENDED)
        await there.got(1)
        await until(lambda: one.clock.sleepers)
        one.clock.move(DISABLED_AFTER_S)
        await there.got(2)
        await until(lambda: one.clock.sleepers)
        assert [row.state for row in one.notifications.targets] == ["active", "active"]
        for _ in range(MOST_ATTEMPTS - 2):
            await one.clock.next_sleep()
        [notice] = await other.got(1)
        assert json.loads(notice.body)["data"] == {"webhook": hook.id, "name": "hook"}
        disabled = one.notifications.targets.get(hook.id)
        assert disabled
        assert (disabled.state, "4 days" in disabled.reason) == ("disabled", True)
        dead = await one.row(hook, "dead")
        assert dead.error
        assert next(row.decision for _, row in await one.store.audit(1 << 60, 9)) == "disabled"
        await one.happens(ENDED, run="run_2")
        assert len(await one.notifications.deliveries(disabled)) == 1, "nothing more is written for it"
        with pytest.raises(TargetDisabled):
            await one.notifications.retry(disabled, dead.id)


async def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    """The check of an address takes long; a secret that was made meanwhile is the one that signs."""
    async with receiver() as there, receiver() as moved, notifying_server(tmp_path, max_notification_targets=2) as one:
        hook = await one.hook(there.url)
        resolved, looking = asyncio.Event(), asyncio.Event()

        async def resolve(_host: str, _port: int) -> list[object]:
            looking.set()
            await resolved.wait()
            return [ip_address("127.0.0.1")]

        one.notifications.sender = Sender(("localhost",), resolve=resolve)  # type: ignore[arg-type]
        url = moved.url.replace("127.0.0.1", "localhost")
        moving = asyncio.create_task(one.notifications.change(hook, LOCAL_USER, {"url": url}))
        await looking.wait()
        adding = [asyncio.create_task(one.hook(url)) for _ in range(3)]
        renewed = await one.notifications.new_secret(hook, LOCAL_USER)
        resolved.set()
        await moving
        now = one.notifications.targets.get(hook.id)
        assert now
        assert (now.url, now.version) == (url, renewed.version)
        refused = [one for one in await asyncio.gather(*adding, return_exceptions=True) if isinstance(one, Exception)]
        assert [type(error) for error in refused] == [TooManyTargets] * 2


async def test_events_reach_their_owner_only(tmp_path: Path) -> None:
    ann, bob, root = (
        Principal(name, Role(role)) for name, role in (("ann", "user"), ("bob", "user"), ("root", "admin"))
    )
    async with receiver() as of_ann, receiver() as of_bob, receiver() as of_all, notifying_server(tmp_path) as one:
        await one.tokens(ann="user", bob="user", root="admin")
        hook = await one.hook(of_ann.url, by=ann)
        await one.hook(of_bob.url, by=bob)
        everyone = await one.hook(of_all.url, by=root, everyone=True)
        await one.happens(ENDED, principal="ann")
        [seen], [all_seen] = await of_ann.got(1), await of_all.got(1)
        assert json.loads(seen.body)["data"]["title"] == "A title"
        data = json.loads(all_seen.body)["data"]
        assert data == {"principal": "ann", "run": "run_1", "reason": "answered", "session": "ses_ann"}
        assert not of_bob.requests
        for other in (bob, root):
            with pytest.raises(NotFound):
                one.notifications.own(hook.id, WEBHOOKS, other)
        with pytest.raises(TargetForbidden):
            await one.hook(of_bob.url, by=bob, everyone=True)
        with pytest.raises(NotEntitled):
            await one.hook(of_bob.url, by=Principal("gus", Role.GUEST))
        await one.row(everyone, "delivered")


async def test_a_webhook_of_someone_who_became_a_guest_is_switched_off_with_the_reason(tmp_path: Path) -> None:
    async with receiver() as there, notifying_server(tmp_path) as one:
        await one.tokens(ann="guest")
        target = await one.hook(there.url, by=Principal("ann", Role.USER))
        await one.happens(ENDED, principal="ann")
        ann = Principal("ann", Role.GUEST)
        async with asyncio.timeout(30):
            for _ in count():
                if (row := one.notifications.own(target.id, WEBHOOKS, ann)).state != "active":
                    break
                await asyncio.sleep(0)
        assert row.reason.startswith("Guests have no webhooks, and ann is a guest.") and not there.requests


async def test_a_labelled_conversation_is_not_named(tmp_path: Path) -> None:
    async with receiver() as there, notifying_server(tmp_path) as one:
        await one.hook(there.url)
        await one.store.write([SessionLabel("ses_local", "secret", "mark", "", "", 1.0)])
        await one.happens(ENDED)
        [request] = await there.got(1)
        assert json.loads(request.body)["data"]["title"] == ""


async def test_the_rights_of_the_owner_are_those_of_now(tmp_path: Path) -> None:
    root = Principal("root", Role.ADMIN)
    async with receiver() as there, notifying_server(tmp_path) as one:
        hook = await one.hook(there.url, by=root, everyone=True)
        await one.tokens(root="user", ann="user")  # no admin any more
        await one.happens(ENDED, principal="ann")
        await until(lambda: one.notifications.targets.get(hook.id).state == "disabled")  # type: ignore[union-attr]
        assert not there.requests


async def test_what_was_written_before_a_crash_is_delivered_once(tmp_path: Path) -> None:
    """The server dies while its receiver keeps it waiting; the next one delivers, with the same id."""
    clock = ManualClock()
    async with receiver(200, HANG) as there:
        async with notifying_server(tmp_path, clock=clock) as one:
            hook = await one.hook(there.url)
            await one.happens(ENDED)
            one.notifications.outbox.job_ended(job(clock.now()))
            await there.got(1)
        async with notifying_server(tmp_path, clock=clock) as one:
            await there.got(3)
            await until(lambda: not one.notifications.targets.pending.get(hook.id))
            one.notifications.outbox.job_ended(job(clock.now()))  # as each start does
            rows = await one.notifications.deliveries(hook)
            assert sorted((row.kind, row.state) for row in rows) == [
                ("job.ended", "delivered"),
                ("run.ended", "delivered"),
            ]
            assert len({request.headers["webhook-id"] for request in there.requests}) == 2


async def test_what_is_over_is_not_news(tmp_path: Path) -> None:
    async with receiver() as there, notifying_server(tmp_path) as one:
        hook = await one.hook(there.url)
        for ended in (one.clock.now() - 1, one.clock.now() - LATE_S - 1):  # before the webhook was there
            one.notifications.outbox.job_ended(job(ended))
        one.clock.move(10)
        one.notifications.outbox.budget_used("local", "tokens_per_month", "2026-11", 79, 100)
        for used in (80, 95):
            one.notifications.outbox.budget_used("local", "tokens_per_month", "2026-11", used, 100)
        [request] = await there.got(1)
        assert json.loads(request.body)["data"] == {"budget": "tokens_per_month", "used": "80%"}
        one.notifications.outbox.budget_used("local", "tokens_per_month", "2026-12", 100, 100)
        await there.got(2)
        assert len(await one.notifications.deliveries(hook)) == 2


async def test_without_targets_nothing_happens(tmp_path: Path) -> None:
    async with notifying_server(tmp_path) as one:
        tasks = len(asyncio.all_tasks())
        await one.happens(WAITS, ENDED)
        one.notifications.outbox.job_ended(job(one.clock.now()))
        one.notifications.outbox.budget_used("local", "tokens_per_month", "2026-11", 100, 100)
        await one.journal.flush()
        assert (await one.store.sizes())["deliveries"] == 0
        assert len(asyncio.all_tasks()) == tasks
        assert not (tmp_path / "data" / "notifications").exists(), "not even a key"


async def test_everything_is_bounded(tmp_path: Path) -> None:
    async with receiver(HANG) as there, notifying_server(tmp_path, max_notification_targets=2) as one:
        hook = await one.hook(there.url)
        await one.hook(there.url, "job.ended")
        with pytest.raises(TooManyTargets):
            await one.hook(there.url)
        events = [ApprovalRequired(f"call_{number}", "bash", {}, "", None) for number in range(MOST_PENDING + 5)]
        await one.happens(*events)
        assert one.notifications.targets.dropped == {hook.id: 5}
        assert (await one.store.pending_deliveries())[hook.id] == MOST_PENDING


def test_keys_are_private_and_made_once(tmp_path: Path) -> None:
    first = KeyFiles(tmp_path).webhook_secret("whk_1", 1)
    again = KeyFiles(tmp_path)
    assert again.webhook_secret("whk_1", 1) == first
    assert len({first, again.webhook_secret("whk_1", 2), again.webhook_secret("whk_2", 1)}) == 3
    path = tmp_path / "notifications" / "signing.key"
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_every_kind_has_words() -> None:
    assert all(words and words[0].isupper() for words in KINDS.values())
