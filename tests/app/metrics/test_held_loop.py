"""The watch over servers in tests: it fails a test whose server holds the loop, and excuses what is done once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from app.metrics.loop_watchdog import ROOT
from tests.support.server.held_loop import is_excused, is_once, limit_s, loop_not_held

pytestmark = pytest.mark.anyio
HOLD = "import time\ndef hold(cpu_s):\n    end = time.thread_time() + cpu_s\n    while time.thread_time() < end: pass\n"


def hold_in(file: str) -> Callable[[float], None]:
    """A function that holds the loop, as if it stood in this file."""
    names: dict[str, Callable[[float], None]] = {}
    exec(compile(HOLD, f"{ROOT}{file}", "exec"), names)
    return names["hold"]


async def test_a_server_that_holds_the_loop_fails_its_test() -> None:
    hold, end = hold_in("app/imagined.py"), time.monotonic() + 30
    failure = ""
    while not failure and time.monotonic() < end:  # a watchdog that had no core at that time has seen nothing
        try:
            with loop_not_held(), loop_not_held():
                asyncio.get_running_loop().call_soon(hold, 10 * limit_s())
                await asyncio.sleep(0)
        except AssertionError as error:
            failure = str(error)
    assert "app/imagined.py:4 hold" in failure


async def test_the_tests_own_work_is_excused() -> None:
    with loop_not_held():
        hold_in("tests/imagined.py")(10 * limit_s())


@pytest.mark.parametrize(
    ("stack", "excused"),
    [
        (("/lib/json.py:1 dumps", "routes/a.py:1 a"), False),
        (("app/a.py:1 a", "tests/b.py:1 b"), True),
        (("tests/b.py:1 b", "app/a.py:1 a"), True),
        (("/lib/httpx.py:1 parse",), True),
        (("<frozen importlib._bootstrap>:1 exec", "app/a.py:1 a"), True),
        (("/lib/re/_compiler.py:1 compile", "app/a.py:1 a"), True),
    ],
)
def test_the_test_and_what_is_done_once_are_excused(stack: tuple[str, ...], excused: bool) -> None:
    assert (is_excused(stack) or is_once(stack)) == excused
