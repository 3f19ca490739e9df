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

MOST_PLACES = 3
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
TOOL = """    Tool(
        "ring_bell",
        "Ring the bell.",
        _object({"times": _FROM_1}),
        Risk.READ,
        answering(ring_bell),
        role=Role.GUEST,
        confined=True,
    ),
    _confined(
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
        Edit("tools/catalogue.py", '    _confined(\n        "list_files",\n', TOOL),
        Edit("tools/catalogue.py", "from tools.builtin.session_tools", f"{RING}\nfrom tools.builtin.session_tools"),
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
    "A section of the settings": (
        Edit("routes/page/js/panels/greeting.js", "", SECTION),
        Edit(
            "routes/page/js/panels/settings_panel.js",
            '    collapsible(t("settings.keys")',
            '    loadedSection(t("greeting.title"), async () => (await import("./greeting.js")).greeting()),\n'
            '    collapsible(t("settings.keys")',
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
COMMANDS = (
    ("-m", "tests.tasks.texts"),
    ("-m", "tests.tasks.record_runs", *RECORDED),
    ("-m", "tests.tasks.documents"),
    ("-m", "ruff", "format", "--check", "."),
    ("-m", "ruff", "check", "."),
    (
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not test_cases or recipe"),
        *(f"tests/house/{name}" for name in NAMED),
        *("tests/parsing/test_cases.py", "tests/parsing/test_table.py"),
        *(f"tests/routes/http/runs/test_golden.py::test_a_story_gives_its_recorded_log[{name}]" for name in RECORDED),
    ),
)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_has_few_places(recipe: str) -> None:
    """The tables of texts are one: a key is in each of them."""
    places = {"routes/texts" if one.path.startswith("routes/texts/") else one.path for one in RECIPES[recipe]}
    assert len(places) <= MOST_PLACES
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
