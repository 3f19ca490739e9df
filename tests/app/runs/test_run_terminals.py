"""Which commands get a terminal: the setting, the client that shows the run, and its leaving."""

from __future__ import annotations

import pytest

from app.runs.discipline.run_terminals import Audience, RunTerminals, TerminalSize, TerminalUse
from tools.base.screen import Window

SHOWN = TerminalSize(columns=100, rows=30)


@pytest.mark.parametrize(
    ("use", "shown", "left", "window"),
    [
        ("auto", SHOWN, False, Window(30, 100)),
        ("auto", SHOWN, True, None),
        ("auto", None, False, None),
        ("on", SHOWN, True, Window(30, 100)),
        ("on", None, True, Window()),
        ("off", SHOWN, False, None),
    ],
)
def test_a_command_gets_a_terminal_where_it_is_shown(
    use: TerminalUse, shown: TerminalSize | None, left: bool, window: Window | None
) -> None:
    terminals = RunTerminals(use, shown, {"run_1": left}.__getitem__)
    assert terminals.window("run_1") == window
    possible = None if use == "off" or (use, shown) == ("auto", None) else Window(30, 100) if shown else Window()
    assert terminals.usual == possible


def test_readers_are_gone_once_the_last_has_left() -> None:
    audience = Audience()
    seen = [audience.is_gone]
    with audience:
        with audience:
            seen.append(audience.is_gone)
        seen.append(audience.is_gone)
    seen.append(audience.is_gone)
    with audience:
        seen.append(audience.is_gone)
    assert seen == [False, False, False, True, False]
    assert Audience(was_there=True).is_gone  # of a run that a server before this one began
