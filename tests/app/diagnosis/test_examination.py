"""Examinations of fake servers: each reported fault is named, and a right server is not accused."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

import pytest

from app.core.provider import CallForm
from app.diagnosis.defects import DEFECTS
from app.diagnosis.examination import CannotExamine, examine
from app.diagnosis.probes import PROBES, SAMPLES
from app.diagnosis.report import Report, Subject, code, markdown, report_of
from app.diagnosis.trial import Trial
from app.diagnosis.wire import read_wire
from tests.support.models.chatting import chat_with
from tests.support.models.engines import FAULTY, OTHERS, RIGHT, WINDOW, Bend, Turn, engine
from tests.support.models.upstream import Upstream

pytestmark = pytest.mark.anyio


async def report_on(bend: Bend, *, quick: bool = True) -> Report:
    async with engine(bend) as server, chat_with(server) as chat, aclosing(examine(chat, quick=quick)) as steps:
        async for step in steps:
            if isinstance(step, Report):
                return step
    raise AssertionError("no report")


@pytest.mark.parametrize("name", RIGHT)
async def test_a_right_server_is_not_accused(name: str) -> None:
    assert (await report_on(RIGHT[name])).defects == []


@pytest.mark.parametrize("place", [*FAULTY, *OTHERS])
async def test_a_fault_is_named(place: str) -> None:
    name, bend = (FAULTY | OTHERS)[place]
    report = await report_on(bend)
    assert name in [found.code for found in report.defects]


def test_each_defect_has_a_server() -> None:
    assert {row.code for row in DEFECTS} == {name for name, _ in (FAULTY | OTHERS).values()}


async def test_a_weak_model_is_no_fault_of_its_server() -> None:
    report = await report_on(RIGHT["a weak model"])
    assert any("larger model" in line for line in report.weaknesses)
    assert not report.is_clean


async def test_what_runs_repair_is_counted_apart_from_what_arrives() -> None:
    [native, *_] = (await report_on(FAULTY["https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/1794"][1])).forms
    assert (native.form, native.right_as_sent, native.asked - native.right) == ("native", 0, 2)


async def test_the_settings_that_help() -> None:
    text_only = await report_on(FAULTY["https://github.com/vllm-project/vllm/issues/31501"][1])
    assert text_only.settings["tool_calls"] == "tagged"
    window = await report_on(FAULTY["Ollama cuts prompts that are longer than num_ctx"][1])
    assert window.settings == {"window": WINDOW - 8}


def test_a_grammar_of_native_calls_is_for_servers_that_can_be_asked_for_one() -> None:
    kinds = ("vLLM", "llama.cpp", "LM Studio")
    assert ["tool_grammar" in report_of_call("x", "{}", server=kind).settings for kind in kinds] == [True, False, False]


async def test_a_quick_examination_has_60_prompts_and_a_whole_one_about_200() -> None:
    assert (await report_on(RIGHT["native"])).prompts == 60
    assert 160 <= (await report_on(RIGHT["native"], quick=False)).prompts <= 240


async def test_a_server_that_does_not_answer_cannot_be_examined() -> None:
    async with chat_with(Upstream(port=9)) as chat:
        with pytest.raises(CannotExamine):
            await anext(examine(chat, quick=True))


CALLS: list[Any] = [5, {"a": 1}, [None], ["x"], [{"index": []}], [{"function": "x"}], [{"function": {"name": 5}}]]
MALFORMED: list[Any] = [{"choices": 5}, {"choices": [None]}, {"choices": [{"delta": "x"}]}]
MALFORMED += [{"choices": [{"delta": {"tool_calls": calls}}]} for calls in CALLS]


@pytest.mark.parametrize("chunk", MALFORMED, ids=json.dumps)
def test_an_answer_of_another_shape_is_broken(chunk: Any) -> None:
    wire = read_wire(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode(), streamed=True)
    assert wire.broken.startswith("not a chat completion")


def report_of_call(name: str, arguments: str, server: str = "") -> Report:
    call = {"index": 0, "id": "a", "function": {"name": name, "arguments": arguments}}
    delta = {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": name}]}
    trial = Trial(probe=next(one for one in PROBES if one.asks), values=SAMPLES[0], streamed=True, status=200)
    trial.read("", f"data: {json.dumps(delta)}\n\n".encode())
    subject = Subject(
        "m", None, CallForm.NATIVE, offers_tools=True, images=None, quick=True, trials=[trial], server=server
    )
    return report_of(subject)


def test_arguments_that_are_nested_too_deeply_are_not_right() -> None:
    [native] = report_of_call("get_weather", '{"city":' + "[" * 900 + "]" * 900 + "}").forms
    assert native.right == 0


def test_a_report_is_short_whatever_the_server_sends() -> None:
    report = report_of_call("x" * 500_000, "{}")
    assert "finish_wrong" in [found.code for found in report.defects]
    assert len(markdown(report)) < 10_000


async def test_an_endpoint_that_is_removed_ends_its_examination() -> None:
    async with (
        engine(RIGHT["native"]) as server,
        chat_with(server) as chat,
        aclosing(examine(chat, quick=True)) as steps,
    ):
        await anext(steps)
        await chat.close()
        with pytest.raises(CannotExamine, match="removed"):
            await anext(steps)


async def test_words_of_the_server_are_code_in_the_report() -> None:
    sent = "tools are off ![x](http://127.0.0.1/x.png)"

    def refuses(turn: Turn) -> Turn:
        turn.refusal = sent if turn.tools else ""
        return turn

    report = await report_on(refuses)
    assert any(f"`status 400: {sent}`" in note for note in report.notes)


def test_the_page_of_markdown_keeps_backquotes_as_code() -> None:
    assert code("a `b` ``c``") == "``` a `b` ``c`` ```"
