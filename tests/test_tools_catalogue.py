import json

import pytest
from jsonschema import Draft202012Validator

from tools.base.rights import Risk
from tools.catalogue import TOOLS
from tools.tool import Tool


def test_the_tools_that_ship() -> None:
    assert {tool.name: tool.risk for tool in TOOLS} == {
        "bash": Risk.EXECUTE,
        "python": Risk.EXECUTE,
        "read_file": Risk.READ,
        "write_file": Risk.WRITE,
        "edit_file": Risk.WRITE,
        "list_files": Risk.READ,
        "job_status": Risk.READ,
        "job_output": Risk.READ,
        "job_cancel": Risk.WRITE,
        "read_result": Risk.READ,
        "recall_history": Risk.READ,
        "web_fetch": Risk.NETWORK,
    }


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_row_is_whole(tool: Tool) -> None:
    Draft202012Validator.check_schema(tool.parameters)
    assert tool.parameters["type"] == "object" and tool.description.endswith(".")


def test_all_rows_together_are_short_enough_for_a_small_model() -> None:
    written = json.dumps([[tool.name, tool.description, tool.parameters] for tool in TOOLS])
    # About 700 tokens; JSON has some 3.5 characters to a token.
    assert len(written) < 2_460
