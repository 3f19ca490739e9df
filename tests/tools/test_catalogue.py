import json
import re
from collections.abc import Sequence

import pytest
from jsonschema import Draft202012Validator

from tests import ROOT
from tests.support.catalogues import ROOM, grown
from tools.catalogue import TOOLS
from tools.tool import Tool

# JSON has some 3.5 characters to a token: about 100 tokens for the longest row, 65 on average, 1,300 for twenty tools.
ROW_CHARACTERS, CHARACTERS = 360, 220
MOST = 25  # tools of all models


def test_the_table_of_the_documents_has_every_tool_with_its_arguments_and_risk() -> None:
    page = (ROOT / "docs/tools.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (\w+) \|", page, re.MULTILINE)
    described = {name: (set(arguments.split(", ")), risk) for name, arguments, risk in rows}
    assert described == {tool.name: (arguments_of(tool), tool.risk) for tool in TOOLS}


def arguments_of(tool: Tool) -> set[str]:
    required = tool.parameters["required"]
    return {f"`{name}`" if name in required else f"`{name}`?" for name in tool.parameters["properties"]}


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_row_is_whole(tool: Tool) -> None:
    Draft202012Validator.check_schema(tool.parameters)
    assert tool.parameters["type"] == "object" and tool.description.endswith(".")


def written(*tools: Tool) -> str:
    return json.dumps([[tool.name, tool.description, tool.parameters] for tool in tools])


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_row_is_short_enough_for_a_small_model(tool: Tool) -> None:
    assert len(written(tool)) <= ROW_CHARACTERS


SMALL = [tool for tool in TOOLS if not tool.least_window]  # what a small model is offered


@pytest.mark.parametrize("tools", [SMALL, grown(tools=SMALL)], ids=["today", "twenty tools"])
def test_the_rows_are_short_enough_for_a_small_model(tools: Sequence[Tool]) -> None:
    assert len({tool.name for tool in tools}) == len(tools) <= ROOM
    assert len(written(*tools)) <= CHARACTERS * ROOM


def test_all_rows_are_short_enough_for_the_others() -> None:
    assert len(TOOLS) <= MOST and len(written(*TOOLS)) <= CHARACTERS * MOST
