"""Bodies with thousands of unknown keys: the same answer as with six, without an error for each."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, Field, ValidationError

from app.core.strict_model import StrictModel
from app.schedules.requests import ScheduleRequest, TriggerRequest
from routes.http.administration.endpoints import EndpointRequest
from routes.protocol.errors import Refused
from routes.protocol.requests import ChatRequest, SessionRequest, checked
from routes.protocol.unknown_keys import FEW, MOST_NAMED, with_few_unknown

MANY = {f"key{number}": number for number in range(95_000)}
TOOL = {"name": "look", "parameters": {"type": "object", "properties": MANY}}


@pytest.mark.parametrize(
    ("kind", "fields", "named"),
    [
        (ChatRequest, {"message": "x", **MANY}, "unknown field key0; allowed are message, "),
        (ChatRequest, {**MANY, "message": 7}, "message"),
        (ChatRequest, {"message": "x", "system": {"text": "y", **MANY}}, "unknown field system.key0"),
        (ChatRequest, {"message": [{"type": "text", "text": "y", **MANY}]}, "unknown field message.0.key0"),
        (
            ChatRequest,
            {"message": "x", "session": "s", "tool_results": [{"call": "c", **MANY}] * 3},
            "tool_results.0.text is missing; unknown field tool_results.0.key0",
        ),
        (ScheduleRequest, MANY, "is missing"),
        (TriggerRequest, {"options": MANY}, "is missing"),
        (SessionRequest, {"options": MANY}, "unknown field options.key0"),
        (EndpointRequest, {"name": "a", "url": "http://a/v1", **MANY}, "unknown field key0"),
    ],
)
def test_the_answer_is_that_of_the_first_few(kind: type[BaseModel], fields: dict[str, Any], named: str) -> None:
    few = json.loads(json.dumps(fields), object_pairs_hook=first_hundred)
    assert len(few) <= FEW + 36
    with pytest.raises(Refused) as of_few:
        checked(kind, few)
    with pytest.raises(Refused) as of_many:
        checked(kind, fields)
    assert (of_many.value.status, str(of_many.value)) == (422, str(of_few.value))
    assert named in str(of_many.value)


def first_hundred(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    known = [pair for pair in pairs if not pair[0].startswith("key")]
    return dict(known + [pair for pair in pairs if pair[0].startswith("key")][: 100 - len(known)])


def test_only_as_many_errors_are_made_as_are_shown() -> None:
    with pytest.raises(ValidationError) as wrong:
        ChatRequest.model_validate(with_few_unknown(ChatRequest, {"message": "x", "system": dict(MANY), **MANY}))
    assert wrong.value.error_count() <= 2 * MOST_NAMED + 1


def test_objects_of_any_keys_are_left_as_they_are() -> None:
    fields = {"message": "x", "client_tools": [TOOL]}
    assert with_few_unknown(ChatRequest, fields) == fields


class Inner(StrictModel):
    """One of two that a field may be."""

    a: int = 0


class Other(StrictModel):
    """The other."""

    b: int = 0
    free: dict[str, int] = Field(default_factory=dict)


class Outer(StrictModel):
    """Fields of every shape."""

    one: Inner | None = None
    either: Inner | Other | None = None
    several: list[Inner] = Field(default_factory=list)
    free: dict[str, Inner] = Field(default_factory=dict)


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({"one": {"a": 1, **MANY}}, {"one": 1 + MOST_NAMED}),
        ({"either": {"a": 1, "b": 2, **MANY}}, {"either": 2 + MOST_NAMED}),
        ({"several": [{**MANY}]}, {"several": 1}),
        ({"free": {**MANY}}, {"free": len(MANY)}),
        ({"either": {"free": {**MANY}}}, {"either": 1}),
    ],
)
def test_each_object_of_a_model_keeps_its_fields_and_the_first_others(
    fields: dict[str, Any], left: dict[str, int]
) -> None:
    found = with_few_unknown(Outer, fields)
    assert {name: len(value) for name, value in found.items()} == left
    if "several" in found:
        assert len(found["several"][0]) == MOST_NAMED
    if "free" in found.get("either", {}):
        assert found["either"]["free"] == MANY
