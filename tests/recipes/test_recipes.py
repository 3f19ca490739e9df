"""The recipes of docs/contributing.md, each followed in a copy of the house: few places, and nothing else turns red.

All are followed in one copy, and the tests that they name run there once: who adds a tool has perhaps added an event.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import ROOT
from tests.support.sources import FOLDERS

MOST_PLACES = 3  # beside the line in docs/
TOGETHER = ("routes/texts", "app/models/wire/recipe", "routes/lanes/recipe")
LIMIT_S = 280  # of one command, beside others
CASE = {
    "id": "recipe/single",
    "dialect": "recipe",
    "tools": [{"name": "ring", "parameters": {"type": "object", "properties": {"bell": {"type": "string"}}}}],
    "text": '§call§{"name": "ring", "arguments": {"bell": "big"}}§end§',
    "expected": {"content": "", "reasoning": None, "calls": [{"name": "ring", "arguments": {"bell": "big"}}]},
}
SECTION = """/** A section of the settings that says hello. */

import { h } from "../dom/elements.js";
import { t } from "../dom/more_texts.js";

export function greeting() {
  return h("p", {}, t("greeting.hello"));
}
"""
EVENT = '''class RoundCut(Struct, frozen=True):
    """The model's token limit has ended round `round`."""

    type: ClassVar[str] = "round.cut"
    round: int


AgentEvent = (
    RoundCut
    | RunStarted
'''
TOOL = """    _reading("ring_bell", "Ring the bell.", _object({"times": _FROM_1}), answering(ring_bell)),
    _reading(
        "list_files",
"""
RING = "from tools.builtin.ring_bell import ring_bell"
BELL = '''"""The tool `ring_bell`."""

from __future__ import annotations

from parsing import Arguments
from tools.tool import Context


async def ring_bell(arguments: Arguments, _: Context) -> str:
    """Ring the bell as often as is asked."""
    return " ".join(["Ding."] * arguments["times"])
'''

WIRE = '''"""Chat Completions of a server that has them at another path."""

from __future__ import annotations

from app.models.wire.openai.provider import OpenAIChat


class RecipeChat(OpenAIChat):
    """The same messages and chunks."""

    @property
    def url(self) -> str:
        return f"{self.base_url}/complete"
'''
PROVIDER = """\
    ProviderKind("recipe", ("https",), partial(HTTPConnection, RecipeChat), "recipe", ("api.example.net",)),
"""
ROUTE = '''"""A bell."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from routes.protocol.errors import ASCIIResponse
from routes.protocol.route import Route, tagged


async def ring(_: Request) -> Response:
    """Ring the bell."""
    return ASCIIResponse({"rings": True})


ROUTES = tagged("Server", Route("GET /bell", ring, rights="admin", answer={"rings": "boolean"}))
'''
LANE_REQUEST = '''"""Requests of the lane: a question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.core.messages import Message
from routes.lanes.lane import LaneRequest
from routes.lanes.reading import Node


def read_request(body: Mapping[str, Any]) -> LaneRequest:
    """Raises Refused."""
    node = Node(body)
    return LaneRequest(
        model=node.text("model"), messages=[Message("user", node.required_text("question"))], stream=True
    )
'''
LANE_STREAM = '''"""A run's log as the lane's blocks: its texts, and that it has ended."""

from __future__ import annotations

from app.core.events import TERMINAL, TextDelta
from app.storage.runs import EventRow
from routes.lanes.event_text import text_literal
from routes.lanes.lane import Turn


class RecipeEncoder:
    def __init__(self, turn: Turn) -> None:
        self.over = False

    def frames(self, row: EventRow) -> str:
        if row.type == TextDelta.type:
            return f"data: {text_literal(row)}\\n\\n"
        self.over = row.type in TERMINAL
        return "data: null\\n\\n" if self.over else ""
'''
LANE = """    Lane(
        name="recipe",
        path="/recipe",
        read=read_recipe,
        encoder=RecipeEncoder,
        whole=stream_only,
        error=plain_error,
        about="A question and its answer, always streamed.",
        body=Body({"question": "text", "model?": "text"}, {"question": "Is it warm in Rome?"}),
    ),
"""
LETTER = '''"""The letter to a bell: what it says is its body."""

from __future__ import annotations

from app.notifications.channel import ChannelParts, Letter
from app.storage.notices.notifications import DeliveryRow, TargetRow


async def bell_letter(row: DeliveryRow, target: TargetRow, _: float, parts: ChannelParts) -> Letter:
    """Raises StoreFailed."""
    message = await parts.messages.short(row, target)
    return Letter({"Content-Type": "text/plain; charset=utf-8"}, message["title"].encode())
'''


class Edit(NamedTuple):
    """Put `text` in the place of `at`, or at the end of a file; without `at` the file is new, and is `text`."""

    path: str
    at: str
    text: str


END = "\n"  # the place at the end of a file
RECIPES: dict[str, tuple[Edit, ...]] = {
    "A language": (
        Edit("routes/texts/xx.json", "", (ROOT / "routes" / "texts" / "de.json").read_text()),
        Edit("routes/page/js/dom/texts.js", 'de: "Deutsch"', 'de: "Deutsch", xx: "Plattdüütsch"'),
    ),
    "A dialect": (
        Edit(
            "parsing/dialects/json_rows.py",
            '    Dialect(\n        "longcat",',
            '    Dialect(\n        "recipe", "json_sentinel", "a model of this test",\n'
            '        rf"§call§{S}{JSON}", body.json_calls, shuts=rf"{S}§end§",\n    ),\n'
            '    Dialect(\n        "longcat",',
        ),
        Edit("fixtures/dialects/cases.jsonl", END, f"\n{json.dumps(CASE)}\n"),
    ),
    "A tool": (
        Edit("tools/catalogue.py", '    _reading(\n        "list_files",\n', TOOL),
        Edit("tools/catalogue.py", "from tools.builtin.search_files", f"{RING}\nfrom tools.builtin.search_files"),
        Edit("tools/builtin/ring_bell.py", "", BELL),
        Edit("docs/tools.md", "| `list_files`", "| `ring_bell` | `times` | read | rings the bell |\n| `list_files`"),
    ),
    "An event": (
        Edit("app/core/events.py", "AgentEvent = (\n    RunStarted\n", EVENT),
        Edit("app/runs/agent.py", "    RoundStarted,\n", "    RoundCut,\n    RoundStarted,\n"),
        Edit(
            "app/runs/agent.py",
            '        if reply.stopped == "length":\n',
            '        if reply.stopped == "length":\n            await emit(RoundCut(self.totals.rounds))\n',
        ),
    ),
    "A setting": (
        Edit(
            "app/config/run_settings.py",
            "    parallel_reads: bool",
            '    bells: int = whole(1, 1, 9, "bells in the house")\n    parallel_reads: bool',
        ),
    ),
    "A provider or wire format": (
        Edit("app/models/wire/recipe/__init__.py", "", ""),
        Edit("app/models/wire/recipe/provider.py", "", WIRE),
        Edit(
            "app/models/providers.py",
            '    ProviderKind("openai-compatible"',
            f'{PROVIDER}    ProviderKind("openai-compatible"',
        ),
        Edit(
            "app/models/providers.py",
            "import OpenAIChat\n",
            "import OpenAIChat\nfrom app.models.wire.recipe.provider import RecipeChat\n",
        ),
        Edit("app/core/endpoint_spec.py", '"openai", "anthropic"]', '"openai", "anthropic", "recipe"]'),
        Edit("docs/models.md", "There are five kinds of provider: ", "There are six kinds of provider: `recipe`, "),
    ),
    "A route": (
        Edit("routes/http/bell.py", "", ROUTE),
        Edit("routes/catalogue.py", '    "http.profiles",\n', '    "http.bell",\n    "http.profiles",\n'),
    ),
    "A lane": (
        Edit("routes/lanes/recipe/__init__.py", "", ""),
        Edit("routes/lanes/recipe/request.py", "", LANE_REQUEST),
        Edit("routes/lanes/recipe/stream.py", "", LANE_STREAM),
        Edit("routes/lanes/catalogue.py", "LANES: tuple[Lane, ...] = (\n", f"LANES: tuple[Lane, ...] = (\n{LANE}"),
        Edit(
            "routes/lanes/catalogue.py",
            "from routes.lanes.responses.compaction",
            "from routes.lanes.recipe.request import read_request as read_recipe\n"
            "from routes.lanes.recipe.stream import RecipeEncoder\n"
            "from routes.lanes.responses.compaction",
        ),
        Edit(
            "routes/lanes/error_shapes.py",
            '"/v1/messages": anthropic',
            '"/recipe": plain_error, "/v1/messages": anthropic',
        ),
    ),
    "A notification channel": (
        Edit("app/notifications/bell.py", "", LETTER),
        Edit(
            "app/notifications/channels.py",
            '        Channel(kind="ntfy"',
            '        Channel(kind="bell", words="A bell", family=WEBHOOKS, letter=bell_letter),\n'
            '        Channel(kind="ntfy"',
        ),
        Edit(
            "app/notifications/channels.py",
            "from app.notifications.channel ",
            "from app.notifications.bell import bell_letter\nfrom app.notifications.channel ",
        ),
        Edit("docs/notifications.md", "| `ntfy` |", "| `bell` | a word |\n| `ntfy` |"),
    ),
    "A section of the settings": (
        Edit("routes/page/js/panels/greeting.js", "", SECTION),
        Edit(
            "routes/page/js/panels/settings_panel.js",
            '      section("meter", t("settings.month"), monthly)',
            '      section("bell", t("greeting.title"), async () => (await import("./greeting.js")).greeting()),\n'
            '      section("meter", t("settings.month"), monthly)',
        ),
        *(
            Edit(f"routes/texts/{one}.json", "{\n", '{\n  "greeting.hello": "Moin",\n  "greeting.title": "Moin",\n')
            for one in ("en", "de", "xx")
        ),
    ),
}
# What the recipes say to run, and the tests that hold such a change.
RECORDED = ("call_cut_off", "context_summarised", "context_trimmed", "documents")  # the new event, and all tools
NAMED = ("test_sources.py", "test_documents.py", "test_texts.py", "test_page_sources.py")
OF_DOCUMENT = ("test_every_route_is_there_once_and_has_a_sentence", "test_examples_of_bodies_are_valid")
# The new route and lane of a server that runs, and the new provider.
TRIED = """
import asyncio, pathlib, tempfile
from app.models.providers import provider_kind
from app.models.scripted import Scripted
from tests.support.server.serving import serving

async def main():
    with tempfile.TemporaryDirectory() as folder:
        async with serving(pathlib.Path(folder), Scripted(["Warm."])) as served:
            assert (await served.client.get("/bell")).json() == {"rings": True}
            answer = await served.client.post("/recipe", json={"question": "Is it warm?"})
            assert answer.text.endswith('data: "Warm."\\n\\ndata: null\\n\\n'), answer.text

assert provider_kind("https://api.example.net/v1").name == "recipe"
asyncio.run(main())
"""
COMMANDS = (
    ("-m", "tests.tasks.texts"),
    ("-m", "tests.tasks.record_runs", *RECORDED),
    ("-m", "tests.tasks.record_lanes"),
    ("-m", "tests.tasks.documents"),
    ("-m", "ruff", "format", "--check", "."),
    ("-m", "ruff", "check", "."),
    ("-c", TRIED),
    (
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not test_cases or recipe"),
        *(f"tests/house/{name}" for name in NAMED),
        *("tests/parsing/test_cases.py", "tests/parsing/test_table.py"),
        "tests/app/models/test_model_choice.py::test_every_wire_format_has_its_row",
        *("tests/routes/lanes/test_lanes_golden.py", "tests/app/notifications/test_channels.py"),
        "tests/routes/protocol/test_late_routes.py::test_errors_of_lanes_have_their_shape_before_they_are_imported",
        "tests/routes/access/test_isolation.py::test_the_table_has_every_route_and_no_other",
        *(f"tests/routes/openapi/test_openapi.py::{name}" for name in OF_DOCUMENT),
        *(f"tests/routes/http/runs/test_golden.py::test_a_story_gives_its_recorded_log[{name}]" for name in RECORDED),
    ),
)


def place(path: str) -> str:
    return next((folder for folder in TOGETHER if path.startswith(f"{folder}/")), path)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_has_few_places(recipe: str) -> None:
    """The tables of texts are one: a key is in each of them. So is a folder that is all new."""
    places = {place(one.path) for one in RECIPES[recipe]}
    assert len({one for one in places if not one.startswith("docs/")}) <= MOST_PLACES
    assert f"### {recipe}\n" in (ROOT / "docs" / "contributing.md").read_text()


def copied(folder: Path) -> Path:
    """A copy of the checkout."""
    left_out = shutil.ignore_patterns("__pycache__", "node_modules")
    for name in (*FOLDERS, "fixtures", "docs", ".ci"):
        shutil.copytree(ROOT / name, folder / name, ignore=left_out)
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy2(path, folder)
    for name in (".venv", ".cache"):
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    return folder


def follow(edit: Edit, folder: Path) -> None:
    path = folder / edit.path
    written = path.read_text() if edit.at else ""
    if edit.at == END:
        written = written.rstrip("\n") + edit.text
    elif edit.at:
        assert written.count(edit.at) == 1, f"{edit.path}: {edit.at}"
        written = written.replace(edit.at, edit.text)
    else:
        written = edit.text
    path.parent.mkdir(exist_ok=True)
    path.write_text(written)


@pytest.mark.timeout(2 * LIMIT_S)
def test_recipes_leave_everything_else_green(tmp_path: Path) -> None:
    folder = copied(tmp_path / "house")
    for edits in RECIPES.values():
        for edit in edits:
            follow(edit, folder)
    environ = {**os.environ, "PYTEST_ADDOPTS": ""}
    for command in COMMANDS:
        ended = subprocess.run(
            (sys.executable, *command), cwd=folder, env=environ, capture_output=True, text=True, timeout=LIMIT_S
        )
        assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout[-6000:]}{ended.stderr[-2000:]}"
