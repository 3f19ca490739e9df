"""Web Push: messages that a browser's keys decrypt, to a push service on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from app.notifications.channel import BROWSERS
from app.notifications.push_encryption import (
    MOST_TEXT,
    RECORD,
    encrypted,
    identity,
    new_scalar,
    public_key,
    to_bytes,
    to_text,
)
from app.notifications.sender import UnfitKeys, UnfitUrl
from app.notifications.web_push import push_key
from app.storage.approvals import ApprovalRow
from app.storage.principals import LOCAL_USER, Principal
from tests.support.notifications import ENDED, WAITS, Browser, notifying_server
from tests.support.server.receivers import receiver, until
from tools.base.rights import Role

pytestmark = pytest.mark.anyio


def number(text: str) -> int:
    return int.from_bytes(to_bytes(text), "big")


def test_the_example_of_the_standard() -> None:
    """RFC 8291, section 5 and appendix A. The package http-ece makes the same bytes of these values."""
    browser = Browser(number("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"), to_bytes("BTBZMqHH6r4Tts7J_aSIgg"))
    text = b"When I grow up, I want to be a watermelon"
    body = encrypted(
        text,
        *browser.keys,
        salt=to_bytes("DGv6ra1nlYgDCS1FRnbzlw"),
        scalar=number("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"),
    )
    assert to_text(body) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_y"
        "l95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )
    assert browser.decrypted(body) == text


def test_messages_have_an_upper_bound_and_their_own_keys() -> None:
    browser = Browser()
    bodies = {encrypted(b"x" * 10_000, *browser.keys) for _ in range(2)}
    assert [len(body) for body in bodies] == [RECORD, RECORD]
    assert {browser.decrypted(body) for body in bodies} == {b"x" * MOST_TEXT}


def checked_identity(header: str, audience: str, at: float) -> Mapping[str, str]:
    """Verify the token of RFC 8292 with another library."""
    token, key = header.removeprefix("vapid t=").split(", k=")
    point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), to_bytes(key))
    claims: Mapping[str, str] = jwt.decode(token, point, ["ES256"], audience=audience, options={"verify_exp": False})
    assert at < float(claims["exp"]) <= at + 86_400
    return claims


def test_the_server_says_who_it_is() -> None:
    scalar = new_scalar()
    header = identity(scalar, "https://push.example.org", "mailto:a@example.org", 1000.0)
    assert checked_identity(header, "https://push.example.org", 1000.0)["sub"] == "mailto:a@example.org"
    assert header.endswith(f", k={public_key(scalar)}")


async def test_a_browser_decrypts_what_happened(tmp_path: Path) -> None:
    browser = Browser()
    async with receiver(201) as service, notifying_server(tmp_path) as one:
        row = await one.notifications.subscribe(
            LOCAL_USER, service.url, p256dh=browser.keys[0], auth=browser.keys[1], name="Laptop", events=[]
        )
        asked = ApprovalRow(
            run="run_1",
            call="call_1",
            session="ses_local",
            principal=LOCAL_USER.name,
            name="bash",
            arguments="{}",
            fingerprint="print",
            reason="It asks.",
            created=1.0,
            expires=None,
        )
        await one.store.write([asked])
        await one.happens(WAITS, ENDED)
        waits, ended = await service.got(2)
        assert json.loads(browser.decrypted(waits.body)) == {
            "title": "A call waits for approval (bash)",
            "body": "A title",
            "session": "ses_local",
            "run": "run_1",
            "call": "call_1",
            "tag": "approval.required/run_1",
        }
        assert json.loads(browser.decrypted(ended.body))["title"] == "A run has ended (answered)"
        assert waits.headers["content-encoding"] == "aes128gcm"
        assert [one.headers["urgency"] for one in (waits, ended)] == ["high", "normal"]
        assert int(waits.headers["ttl"]) > 0
        origin = service.url.removesuffix("/hook")
        header = waits.headers["authorization"]
        assert checked_identity(header, origin, time.time() - 60)
        assert header.endswith(push_key(one.notifications.keys)), "the key that browsers subscribe with"
        again = await one.notifications.subscribe(
            LOCAL_USER, service.url, p256dh=browser.keys[0], auth=browser.keys[1], name="", events=["job.ended"]
        )
        assert (again.id, again.name, json.loads(again.events)) == (row.id, "Laptop", ["job.ended"])
        again = await one.notifications.subscribe(
            LOCAL_USER, service.url, p256dh=browser.keys[0], auth=browser.keys[1], name="", events=[]
        )
        assert json.loads(again.events) == ["job.ended"], "as the page renews it: what was chosen stays"


@pytest.mark.parametrize(("status", "is_left"), [(404, False), (410, False), (403, True), (500, True)])
async def test_a_browser_that_is_gone_is_forgotten(tmp_path: Path, status: int, is_left: bool) -> None:
    async with receiver(status) as service, notifying_server(tmp_path) as one:
        row = await one.notifications.subscribe(
            LOCAL_USER, service.url, p256dh=Browser().keys[0], auth=Browser().keys[1], name="Laptop", events=[]
        )
        await one.happens(ENDED)
        if status == 500:
            await one.clock.next_sleep()
        if is_left:
            assert (await one.row(row, "pending" if status == 500 else "dead")).status == status
        else:
            await until(lambda: one.notifications.targets.get(row.id) is None)
            assert (await one.store.sizes())["deliveries"] == 0


async def test_a_browser_belongs_to_one_principal(tmp_path: Path) -> None:
    """To the one who signed in there last: the other's events must not appear on it any more."""
    ann, bob = Principal("ann", Role.USER), Principal("bob", Role.GUEST)
    browser = Browser()
    async with receiver(201) as service, notifying_server(tmp_path) as one:
        await one.tokens(ann="user", bob="guest")
        for principal in (ann, bob):
            await one.notifications.subscribe(
                principal, service.url, p256dh=browser.keys[0], auth=browser.keys[1], name="Laptop", events=[]
            )
        await one.happens(ENDED, principal="ann")
        await one.happens(ENDED, run="run_2", principal="bob")
        [message] = await service.got(1)
        assert json.loads(browser.decrypted(message.body))["session"] == "ses_bob"
        assert not one.notifications.targets.of("ann", BROWSERS)


@pytest.mark.parametrize(
    ("p256dh", "auth"), [("AAAA", "A" * 22), ("B" * 87, "A" * 22), (to_text(b"\4" + b"\1" * 64), "A" * 22), ("", "")]
)
async def test_unfit_subscriptions_are_refused(tmp_path: Path, p256dh: str, auth: str) -> None:
    async with notifying_server(tmp_path, private_hosts="") as one:
        with pytest.raises(UnfitKeys):
            await one.notifications.subscribe(
                LOCAL_USER, "https://push.example.org/x", p256dh=p256dh, auth=auth, name="", events=[]
            )
        with pytest.raises(UnfitKeys):
            await one.notifications.subscribe(
                LOCAL_USER, "https://x.example.org", p256dh=Browser().keys[0], auth="A", name="", events=[]
            )
        with pytest.raises(UnfitUrl):
            await one.notifications.subscribe(
                LOCAL_USER, "https://127.0.0.1/x", p256dh=Browser().keys[0], auth=Browser().keys[1], name="", events=[]
            )
