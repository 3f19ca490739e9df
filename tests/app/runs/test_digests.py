"""Titles and summaries that a model writes: in one line, once each, and never over a person's title."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from app.config.notification_settings import NotificationSettings
from app.core.messages import Message
from app.models.scripted import Pause, Reply, Scripted
from app.runs.digests.jobs import BEHIND, LONGEST_SUMMARY, LONGEST_TITLE, is_due, title_and_summary
from app.storage.notices.digests import DUE, DigestDue, DigestRow
from tests.support.server.receivers import until
from tests.support.server.serving import Served, serving, settings_in

pytestmark = pytest.mark.anyio

WRITTEN = "Cats and dogs\nThe user greets a cat. The dog is named."
ON: dict[str, Any] = {"generated_titles": "always"}

ANSWERS = {
    "two lines": (WRITTEN, ("Cats and dogs", "The user greets a cat. The dog is named.")),
    "labels and marks": ('**Title: "Cats"**\n\n## Summary: They *met*.', ("Cats", "They met.")),
    "links": (
        "[Click here](https://evil.example/x) now\nSee www.evil.example or javascript:alert(1)",
        ("Click here now", "See or"),
    ),
    "markup": ("<img src=x onerror=y>\n<b>Bold</b>", ("img src=x onerror=y", "b Bold /b")),
    "hidden characters": ("A\u202eB\u0000", ("A\\u202eB\\x00", "")),
    "speakers": ("Person: Cats\nAssistant: They met.", ("Cats", "They met.")),
    "only a title": ("Cats", ("Cats", "")),
    "delimiters of the data": ("The conversation [ffvnskqc]:\nCats\nThey met.\n[end ffvnskqc]", ("Cats", "They met.")),
    "nothing": ("\n  \n", ("", "")),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_becomes_plain_lines(name: str) -> None:
    answer, _ = ANSWERS[name]
    title, summary = title_and_summary(answer)
    assert "\n" not in title + summary
    for mark in ("://", "www.", "javascript:", "<", ">", "](", "\u202e", "\0"):
        assert mark not in title + summary
    if name not in ("hidden characters", "markup"):
        assert (title, summary) == ANSWERS[name][1]


def test_both_have_a_limit() -> None:
    title, summary = title_and_summary("x" * 500 + "\n" + "y" * 5000)
    assert (len(title), len(summary)) == (LONGEST_TITLE, LONGEST_SUMMARY)


def test_a_digest_is_due_at_first_and_when_much_was_added() -> None:
    def due(known: int, there: int, *, labels: Sequence[str] = ()) -> bool:
        messages = [Message("user", "x", labels=tuple(labels))] * there
        return is_due(DigestRow("s", "p", "r", DUE, known), messages)

    assert due(0, 2) and due(2, 6)
    assert not due(2, 5) and not due(0, 0) and not due(0, 2, labels=["secret"])


async def listed(served: Served, title: str, headers: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """The sessions, once the first has this title."""
    async with asyncio.timeout(30):
        while True:
            rows: list[dict[str, Any]] = (await served.client.get("/sessions", headers=headers)).json()["sessions"]
            if rows[0]["title"] == title:
                return rows


async def settled(served: Served) -> None:
    """Wait until no digest is under way."""
    store = served.services.store
    async with asyncio.timeout(30):
        for _ in count():
            if not await store.next_digest() and not await store.asked_digests():
                return
            await asyncio.sleep(0)


async def test_a_session_gets_a_title_and_a_summary(tmp_path: Path) -> None:
    provider = Scripted(["Meow.", WRITTEN, "Again.", "More.", "Dogs only\nLater."])
    async with serving(tmp_path, provider, **ON) as served:
        session = (await served.chat("Hello cat"))[0]["session"]
        [row] = await listed(served, "Cats and dogs")
        assert row["summary"] == "The user greets a cat. The dog is named."
        first, asked = provider.requests
        assert asked.whole()[: len(first.whole())] == first.whole() and asked.tools == first.tools
        assert [one.text for one in asked.messages[-2:]] == ["Meow.", BEHIND], "behind what the model has read"
        await served.chat("And?", session=session)  # 4 messages: too little was added
        await settled(served)
        await served.client.patch(f"/sessions/{session}", json={"title": "Mine"})
        await served.chat("And then?", session=session)
        await settled(served)
        [row] = await listed(served, "Mine")
        assert row["summary"] == "Later.", "a person's title stays, and the summary is renewed"
        used = (await served.client.get(f"/sessions/{session}")).json()["usage"]
        assert used["requests"] == 5, "in the budget of the owner"


@pytest.mark.parametrize("answer", ["", "```bash\nls\n```"])
async def test_a_model_that_writes_none_behind_a_conversation_gets_it_as_data(tmp_path: Path, answer: str) -> None:
    provider = Scripted(["Meow.", answer, WRITTEN])
    async with serving(tmp_path, provider, **ON) as served:
        await served.chat("Hello cat")
        await listed(served, "Cats and dogs")
    rule, data = provider.requests[2].messages
    assert "data" in rule.text and "Hello cat" in data.text and not provider.requests[2].tools


async def test_by_default_conversations_that_a_person_watches_get_one(tmp_path: Path) -> None:
    assert settings_in(tmp_path, generated_titles="true").generated_titles == "always", "as it was a switch"
    assert NotificationSettings().generated_titles == "watched"
    provider = Scripted(["Meow.", "Woof.", WRITTEN])
    async with serving(tmp_path, provider, generated_titles="watched") as served:
        await served.chat("Hello cat")
        await settled(served)
        assert len(provider.requests) == 1, "the client is a program"
        await served.chat("Hello dog", terminal={"columns": 80, "rows": 24})
        assert len(await listed(served, "Cats and dogs")) == 2


async def test_it_can_be_off(tmp_path: Path) -> None:
    provider = Scripted(["Meow."])
    async with serving(tmp_path, provider, generated_titles="never") as served:
        await served.chat("Hello cat")
        assert (await served.services.store.sizes())["session_digests"] == 0
        assert "summary" not in (await served.client.get("/sessions")).json()["sessions"][0]
        assert len(provider.requests) == 1


async def test_a_job_survives_a_restart_and_is_asked_once(tmp_path: Path) -> None:
    """The first server ends while its model writes the title, so that is not asked again; what was due is."""
    never = asyncio.Event()
    replies: list[Reply] = ["Meow.", (Pause(never), "never")]
    async with serving(tmp_path, first := Scripted(replies), **ON) as served:
        session = (await served.chat("Hello cat"))[0]["session"]
        await until(lambda: len(first.requests) == 2)
    async with serving(tmp_path, second := Scripted([WRITTEN]), **ON) as served:
        await settled(served)
        assert not second.requests, "at most once"
        run = (await served.client.get(f"/sessions/{session}")).json()["runs"][0]["id"]
        await served.services.store.write([DigestDue(session, "local", run)])
    async with serving(tmp_path, Scripted([WRITTEN]), **ON) as served:
        await listed(served, "Cats and dogs")


async def test_a_title_is_paid_by_the_owner(tmp_path: Path) -> None:
    """A budget that is spent writes none, and nothing is sent."""
    async with serving(tmp_path, Scripted(["Meow."])) as served:
        session = (await served.chat("Hello cat"))[0]["session"]
        [run] = await served.services.store.runs(session)
        await served.services.store.write([DigestDue(session, "local", run.id)])
    async with serving(tmp_path, provider := Scripted([WRITTEN]), tokens_per_month="1", **ON) as served:
        await settled(served)
        assert not provider.requests
        assert (await served.client.get("/sessions")).json()["sessions"][0]["title"] == "Hello cat"
