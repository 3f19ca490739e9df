"""What the model is told of a command or a piece of Python."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from tools.base.outcome import Result, ToolFailed
from tools.builtin.shell import running
from tools.sandbox.sandbox import NoSandbox, find_sandbox
from tools.tool import Context

FOUND = find_sandbox()
LANDLOCK = find_sandbox(levels=["landlock"])
LEVELS = [find_sandbox(unsafe=True), *(box for box in (FOUND, LANDLOCK) if not isinstance(box, NoSandbox))]
TOOLS = {"bash": running("bash", "code"), "python": running("python3", "code")}


@pytest.fixture(params=LEVELS, ids=lambda found: found.level)
def context(request: pytest.FixtureRequest, tmp_path: Path) -> Context:
    return Context(tmp_path, 60, request.param)


def told(tool: str, code: str, context: Context) -> Result:
    async def main() -> Result:
        async with asyncio.timeout(60):
            async with aclosing(TOOLS[tool]({"code": code}, context)) as news:
                *_, last = [seen async for seen in news]
        assert isinstance(last, Result)
        return last

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("tool", "code", "result"),
    [
        ("bash", "echo hello", Result(True, "hello", 0)),
        ("bash", "", Result(True, "(no output)", 0)),
        ("bash", "false", Result(False, "(no output)\n[exit code 1]", 1)),
        ("bash", "echo so far; exit 3", Result(False, "so far\n[exit code 3]", 3)),
        ("bash", "kill -KILL $$", Result(False, "(no output)\n[exit code 137, SIGKILL]", 137)),
        ("bash", "echo ünïcödé 🐪", Result(True, "ünïcödé 🐪", 0)),
        ("bash", "tput cols; echo $TERM $COLUMNS $LINES", Result(True, "120\nxterm-256color 120 40", 0)),
        ("python", "print(6 * 7)", Result(True, "42", 0)),
        (
            "python",
            "import sys; print('out'); print('err', file=sys.stderr); print('out')",
            Result(True, "out\nerr\nout", 0),
        ),
        ("python", "raise SystemExit(4)", Result(False, "(no output)\n[exit code 4]", 4)),
    ],
)
def test_what_the_model_is_told(context: Context, tool: str, code: str, result: Result) -> None:
    assert told(tool, code, context) == result


def test_a_traceback_shows_the_line(context: Context) -> None:
    result = told("python", "x = 0\nprint(1 / x)\n", context)
    assert (
        not result.ok
        and "line 2" in result.text
        and "print(1 / x)" in result.text
        and "ZeroDivisionError" in result.text
    )


def test_modules_of_the_workspace_are_found(context: Context) -> None:
    (context.workspace / "beside.py").write_text("answer = 42\n")
    assert told("python", "import beside; print(beside.answer)", context).text == "42"


@pytest.mark.parametrize("tool", TOOLS)
def test_code_may_be_longer_than_an_argument_of_a_process(context: Context, tool: str) -> None:
    code = "# " + "x" * 300_000 + "\n" + {"bash": "echo whole", "python": "print('whole')"}[tool]
    assert told(tool, code, context).text == "whole"


def test_the_time_limit_is_told(context: Context) -> None:
    result = told("bash", "exec sleep 1000", Context(context.workspace, 0.3, context.sandbox))
    assert not result.ok and result.text == "(no output)\n[stopped after 0.3 s, the time limit]"


def test_a_lone_surrogate_is_refused(context: Context) -> None:
    with pytest.raises(ToolFailed, match="character at 5 is a lone surrogate"):
        told("bash", "echo \ud800", context)


def test_a_workspace_that_cannot_be_written_is_told(context: Context) -> None:
    result = told("bash", "echo x > /sys/made", Context(Path("/sys"), 60, context.sandbox))
    assert not result.ok and "/sys/made" in result.text
    with pytest.raises(ToolFailed, match="could not be started"):
        told("bash", "true", Context(context.workspace / "missing", 60, context.sandbox))
