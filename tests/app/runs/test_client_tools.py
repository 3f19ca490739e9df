"""Lists of tools with those of a client: made without checks of their schemas, and kept up to a size."""

from __future__ import annotations

from typing import Any

import pytest

from app.runs.client_tools import MOST_CHARACTERS, ClientToolLists
from app.runs.run_options import ClientTool
from tools.base.schema_limits import _validator
from tools.base.schemas import LONGEST_OF_CLIENT, client_argument_error
from tools.tool import NO_TOOLS


def test_schemas_are_not_checked_before_a_call() -> None:
    before = _validator.cache_info()
    tools = [ClientTool(name=f"t{at}", parameters={"type": "object", "title": str(at)}) for at in range(512)]
    ClientToolLists().joined(NO_TOOLS, tools)
    assert _validator.cache_info() == before


LONG = {"type": "object", "required": ["a"], "description": "x" * LONGEST_OF_CLIENT}


@pytest.mark.parametrize(
    "schema", [{"$ref": "#"}, {"$ref": "http://localhost:9/s.json"}, {"type": "no such type"}, LONG]
)
def test_a_schema_that_cannot_be_used_allows_any_object(schema: dict[str, Any]) -> None:
    assert client_argument_error("odd", schema, {"b": 1}) is None


def test_of_two_tools_with_one_name_the_last_is_offered() -> None:
    twice = [ClientTool(name="a"), ClientTool(name="b"), ClientTool(name="a", description="The last.")]
    assert [one.description for one in ClientToolLists().joined(NO_TOOLS, twice)] == ["The last.", ""]


def test_lists_of_tools_are_kept_up_to_a_size() -> None:
    lists, text = ClientToolLists(), "x" * (MOST_CHARACTERS // 4)
    for at in range(8):
        lists.joined(NO_TOOLS, [ClientTool(name=f"t{at}", description=text)])
    assert sum(one.characters for one in lists._known.values()) <= MOST_CHARACTERS
    large = [ClientTool(name="large", description=text * 5)]
    assert lists.joined(NO_TOOLS, large) is not lists.joined(NO_TOOLS, large)
