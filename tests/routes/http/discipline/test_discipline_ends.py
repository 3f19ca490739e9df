"""Whatever ends a run, its last words are those that the person has read, whole, judged and without secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.core.provider import ProviderFailed
from app.models.scripted import Pause, Raise, Reply, Scripted
from app.policy.guards import DOUBTED_ANSWER
from app.transcript.run_totals import MAX_TEXT
from tests.support.models.replies import bash_block
from tests.support.server.events import notices, of_kind
from tests.support.server.histories import LIMIT_S, ending_of, whole_history
from tests.support.server.serving import Silence, serving, until

pytestmark = pytest.mark.anyio
SECRET = "sk-1f4b9c7d-not-for-anybody"
ASKED_AGAIN: dict[str, tuple[str, dict[str, Any], Sequence[Reply]]] = {
    "a nudge": ("I will look:", {}, ["I will look:"]),
    "a check": ("Done.", {"verify": "true"}, [bash_block("touch it"), "Done.", "FAIL: no."]),
}


@pytest.mark.parametrize("why", ASKED_AGAIN)
async def test_a_deadline_before_more_is_said_keeps_what_was_said(tmp_path: Path, why: str) -> None:
    words, flags, said = ASKED_AGAIN[why]
    silence = Silence()
    provider = Scripted([*said, (Pause(silence),)])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, **flags) as served:
        async with aclosing(served.turn(message="Hello")) as turn:
            events = [await anext(turn)]
            await silence.noticed.wait()
            await served.end_time(events[0]["run"])
            events += [event async for event in turn]
        assert (await whole_history(served, events))[-1]["text"] == words
    assert ending_of(events) == ("deadline", words) and len(provider.requests) == len(said) + 1


@pytest.mark.parametrize(
    ("last", "judged"),
    [(["Evil.", "UNSAFE"], True), (["", "Evil.", "UNSAFE"], True), (["", ""], False)],
)
async def test_an_answer_is_judged_whatever_limit_ends_the_run(
    tmp_path: Path, last: Sequence[Reply], judged: bool
) -> None:
    provider = Scripted(["```list_files\n```", *last])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, judge_output="true") as served:
        events = await served.chat(max_rounds=2)
    assert ending_of(events)[0] == "round_limit" and len(provider.requests) == 1 + len(last)
    assert (("judge", DOUBTED_ANSWER) in notices(events)) is judged


async def test_a_secret_at_the_end_of_what_is_repeated_is_no_half_secret(tmp_path: Path) -> None:
    provider = Scripted([["x" * (MAX_TEXT - 10), SECRET]])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, model_key=SECRET) as served:
        _, text = ending_of(await served.chat())
    assert text.endswith("x[redacted]"), "not the beginning of it"


async def test_a_message_is_refused_once_a_limit_leaves_no_round_for_it(tmp_path: Path) -> None:
    go_on, judged = asyncio.Event(), asyncio.Event()
    provider = Scripted(["", (Pause(go_on), "Hello."), (Pause(judged), "SAFE")])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, judge_output="true") as served:
        async with aclosing(served.turn(message="This?", max_rounds=1)) as turn:
            path = f"/runs/{(await until(turn, 'run.started'))['run']}/messages"
            assert (await until(turn, "notice"))["code"] == "synthesis"
            assert (await served.client.post(path, json={"message": "And that?"})).status_code == 202
            go_on.set()
            assert (await until(turn, "message.added"))["text"] == "And that?"
            assert (await served.client.post(path, json={"message": "And this?"})).status_code == 409
            judged.set()
            assert (await until(turn, "run.finished"))["text"] == "Hello."


DOUBTFUL = "Il file è molto grande, quindi filtrerò solo le righe con livello ERROR."
VERDICTS: dict[str, tuple[Reply, bool]] = {
    "work": ("WORK", True),
    "an end": ("END", False),
    "no verdict": ("Workers of the world", False),
    "no words": ("", False),
    "no model": ([Raise(ProviderFailed("model_down", "Nobody is there.", retryable=False))], False),
}


@pytest.mark.parametrize("verdict", VERDICTS)
async def test_a_utility_model_decides_doubtful_ends_on_the_budget(tmp_path: Path, verdict: str) -> None:
    said, nudged = VERDICTS[verdict]
    provider = Scripted([bash_block("echo one"), DOUBTFUL, said, "Fertig."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        served.services.models.utility_model = "scripted"
        events = await served.chat("Baue es.")
    assert ending_of(events) == ("answered", "Fertig." if nudged else DOUBTFUL)
    assert [code for code, _ in notices(events)] == (["nudge"] if nudged else [])
    rule, data = provider.requests[2].whole()
    assert "WORK" in rule.text and DOUBTFUL in data.text and "Baue es." in data.text and not provider.requests[2].tools
    assert len(of_kind(events, "usage")) == len(provider.requests) == (4 if nudged else 3)


@pytest.mark.parametrize("tag", ["json", "xml", "text"])
async def test_arguments_in_a_fence_that_names_no_tool_are_no_answer(tmp_path: Path, tag: str) -> None:
    fence = f'```{tag}\n{{"command": "ls"}}\n```'
    provider = Scripted([fence, "Done.", fence])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat("Which files are there?")
        quoted = await served.chat(f"Say this:\n{fence}")
    assert [code for code, _ in notices(events)] == ["nudge"] and ending_of(events) == ("answered", "Done.")
    assert ending_of(quoted) == ("answered", fence) and not notices(quoted)


async def test_without_a_utility_model_a_doubtful_end_is_an_answer(tmp_path: Path) -> None:
    provider = Scripted([bash_block("echo one"), DOUBTFUL])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat("Baue es.")
    assert ending_of(events) == ("answered", DOUBTFUL) and len(provider.requests) == 2
