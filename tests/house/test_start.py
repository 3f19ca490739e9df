"""What a start does not load: modules that only some runs need, in a process of its own for each entry."""

from __future__ import annotations

import subprocess
import sys

import pytest

# module -> packages and modules that importing it leaves out
LEFT_OUT = {
    "routes.server": {
        *("mcp", "mcp_types", "jsonschema", "referencing", "tokenizers", "justhtml", "tree_sitter"),
        *("rich", "prompt_toolkit", "psutil", "numpy", "routes.terminal", "routes.cli"),
        *("acp", "yaml", "markdown_it", "routes.acp", "routes.mcp_server.application", "tools.mcp.connection.session"),
        *("app.models.serving.gguf", "app.models.serving.pool", "app.models.endpoints.served_models"),
        *("routes.http.sessions", "routes.http.feed", "routes.lanes.serving", "routes.transcripts", "routes.openapi"),
        *("app.replay.playing", "app.diagnosis", "app.workspace.descriptions", "tarfile", "attr", "rpds"),
    },
    "routes.cli.tokens": {"httpx2", "uvicorn", "sse_starlette", "app.runs", "app.models", "app.mcp", "tools.mcp"},
    "routes.cli.dialects.parse_text": {"asyncio", "pydantic", "starlette", "app"},
    "app.config.settings": {"asyncio", "httpx2", "starlette", "parsing"},
}


MOST_MODULES = 1_000  # of a server that starts, beside Python's own (979): a hundred of ours take 25 ms and 3 MB
MODULES = """
import sys, routes.server

routes.server.warm_up()
print(sum(name.partition(".")[0] not in sys.stdlib_module_names for name in sys.modules))
"""
EARLY_MODELS = """
import routes.server
from pydantic import BaseModel

def subclasses(kind):
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)

print(*[each.__qualname__ for each in subclasses(BaseModel) if each.__pydantic_complete__])
"""
EARLY_PATTERNS = """
import re, sys

compile, early = re.compile, set()

def noted(*arguments, **options):
    early.add(sys._getframe(1).f_globals["__name__"])
    return compile(*arguments, **options)

re.compile = noted
import routes.server
print(*sorted(one for one in early if one.startswith(("app.", "tools.", "routes."))))
"""
FIRST_RUN = """
from parsing import parse
from parsing.matching import compiled
from parsing.openers import OPENERS
from routes.protocol.requests import ChatRequest
from routes.server import warm_up
from tools.base import patterns

def built():
    kept = len(vars(OPENERS)) + sum(one._compiled is not None for one in patterns._lazy)
    return compiled.cache_info().misses + kept

warm_up()
before = built()
parse("Hello.\\n<tool_call>\\n{}", {"bash": {}})
print(ChatRequest.__pydantic_complete__, built() - before)
"""


def output(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize("module", LEFT_OUT)
def test_an_import_leaves_out_what_only_some_runs_need(module: str) -> None:
    loaded = set(output(f"import sys, {module}; print(*sys.modules)").split())
    assert module in loaded
    assert sorted(LEFT_OUT[module] & loaded) == []


def test_a_warm_server_has_few_modules() -> None:
    assert int(output(MODULES)) <= MOST_MODULES


def test_validators_are_built_at_their_first_use() -> None:
    assert output(EARLY_MODELS).split() == []


def test_patterns_are_compiled_at_their_first_use() -> None:
    assert output(EARLY_PATTERNS).split() == ["tools.sandbox.box_init"]  # also a program, without the other modules


def test_a_warm_server_builds_nothing_for_its_first_run() -> None:
    assert output(FIRST_RUN).split() == ["True", "0"]
