"""The checks of a client: what it asks the model for, and what it must have understood. A row each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.clients.model_server import WAYS
from tests.clients.scenarios import CUT, EXAMPLE, LONG_TEXT, NOTE, OSLO, PLAIN, THOUGHT
from tests.support.parsing.forms import WRITERS

Call = tuple[str, dict[str, Any]]
ALL_TOOLS = ("weather", "add", "note")
PICTURE = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PICTURE_BYTES = 70
LEAVING_S = 30.0  # a model that is not left goes on for ever
# lane -> its words for an answer that is whole, and for one that was cut
FINISH: Mapping[str, Mapping[str, set[str]]] = {
    "chat": {"whole": {"stop"}, "cut": {"length"}},
    "responses": {"whole": {"completed", "stop"}, "cut": {"incomplete", "length"}},
    "messages": {"whole": {"end_turn", "stop"}, "cut": {"max_tokens", "length"}},
    "agui": {"whole": {"success"}, "cut": {"success"}},
    "ui": {"whole": {"stop"}, "cut": {"length"}},
}


@dataclass(frozen=True, slots=True)
class Check:
    """`texts`, `thoughts` and `calls` are all that the client must have understood, in order.

    `finish` is None where the client cannot have a reason. `status` is that of an expected refusal, `fails` expects an
    error without one.
    """

    name: str
    scenarios: Sequence[str]
    texts: Sequence[str] | Callable[[str], Sequence[str]] = ()
    thoughts: Sequence[str] = ()
    calls: Sequence[Call] = ()
    finish: str | None = "whole"
    status: int | None = None
    once: bool = False  # with one model: the answer does not come from it
    fails: bool = False
    tools: Sequence[str] = ALL_TOOLS
    agent: bool = False  # instead of the model itself
    asks: bool = False  # for approval of a call, which the client gives or not as its job says
    job: Mapping[str, Any] = field(default_factory=dict)

    def expected_texts(self, model: str) -> list[str]:
        return list(self.texts(model) if callable(self.texts) else self.texts)


def example(model: str) -> list[str]:
    return [EXAMPLE % (WAYS[model] or WRITERS["hermes"])([OSLO])]


LIMA = ("weather", {"city": "Lima"})
SUMS = [("add", {"a": a, "b": b}) for a, b in ((1, 1), (2, 10), (12, 100))]
NOTED = f"Results: noted {hashlib.sha256(LONG_TEXT.encode()).hexdigest()[:12]} 3 True 42"
HISTORY = "History: user scenario pla / assistant The harbour  / user scenario his"
IN_OSLO = "Results: 12 degrees in Oslo"

CHECKS = (
    Check("plain", ["plain"], [PLAIN], tools=()),
    Check("none", ["plain"], [PLAIN]),
    Check("one", ["one"], [IN_OSLO], calls=[OSLO]),
    Check("two", ["two"], [f"{IN_OSLO} | 12 degrees in Lima"], calls=[OSLO, LIMA]),
    Check("three", ["three"], ["Results: 2 | 12 | 112"], calls=SUMS),
    Check("words", ["words"], ["Let me look.", IN_OSLO], calls=[OSLO]),
    Check("quoted", ["quoted"], [NOTED], calls=[("note", NOTE)]),
    Check("example", ["example"], example),
    Check("thoughts", ["thoughts"], [PLAIN], [THOUGHT]),
    Check("considered", ["considered"], [IN_OSLO], [THOUGHT], [OSLO]),
    Check("image", ["image"], [f"Pictures: {PICTURE_BYTES}"], job={"picture": PICTURE}),
    Check(
        "turns",
        ["plain", "history"],
        [PLAIN, HISTORY],
    ),
    Check("length", ["length"], [CUT], finish="cut"),
    Check("cut-call", ["cut-call"], [CUT], finish="cut"),
    Check("agent", ["one"], [IN_OSLO], calls=[OSLO], agent=True),
    Check("mixed", ["mixed"], ["2 results, one of them: 12 degrees in Oslo"], calls=[OSLO], agent=True),
    Check("approved", ["ask"], ["It is written."], agent=True, asks=True, job={"verdict": True}),
    Check("denied", ["ask"], ["It was not run."], agent=True, asks=True, job={"verdict": False}),
    Check("wrong-key", ["plain"], status=401, once=True, job={"key": "sk-wrong"}),
    Check("unknown-model", ["plain"], status=404, once=True, job={"model": "no-such-model"}),
    Check("failure", ["failure"], fails=True),
    Check("break", ["break"], fails=True),
    Check("leave", ["slow"], finish=None, job={"leave": True}),
)


def problems(check: Check, way: str, model: str, seen: Mapping[str, Any]) -> list[str]:
    """The differences between what the client understood and what it must have."""
    if check.status or check.fails:
        return refusal_problems(check, seen["error"])
    if seen["error"]:
        return [f"error: {seen['error']}"]
    if check.job.get("leave"):
        return [] if seen["left"] else ["it did not leave"]
    lane, found = way.partition("-")[0], []
    # Words that a call follows, or half a call, may end with the white space in front of it.
    texts = [text.rstrip() if seen["calls"] or check.name == "cut-call" else text for text in seen["texts"]]
    calls = [(name, arguments) for name, arguments in seen["calls"]]
    finish = FINISH[lane][check.finish] if check.finish else set()
    if texts != check.expected_texts(model):
        found.append(f"texts {texts} instead of {check.expected_texts(model)}")
    if [thought.strip() for thought in seen["thoughts"]] != list(check.thoughts):
        found.append(f"thoughts {seen['thoughts']} instead of {check.thoughts}")
    if calls != list(check.calls):
        found.append(f"calls {calls} instead of {check.calls}")
    if seen["finish"] is not None and seen["finish"] not in finish:
        found.append(f"finish {seen['finish']} instead of {finish}")
    if seen["usage"] and 18 not in seen["usage"].values():
        found.append(f"usage {seen['usage']}")
    return found


def refusal_problems(check: Check, error: Mapping[str, Any] | None) -> list[str]:
    if not error:
        return ["no error reached the caller"]
    if check.status and error["status"] != check.status:
        return [f"status {error['status']} instead of {check.status}: {error}"]
    if error["kind"] in ("TimeoutError", "AssertionError"):
        return [f"the stream has no proper end: {error}"]
    return []
