"""The window of the terminal client while it is resized: nothing that was drawn for another width stays in it."""

from __future__ import annotations

import asyncio
from io import StringIO
from pathlib import Path

import pytest
from prompt_toolkit.application import Application
from prompt_toolkit.application.current import set_app
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.layout import FormattedTextControl, Layout, Window

from app.models.scripted import Scripted
from routes.terminal.window_layout import Drawing, HeldOutput
from tests.support.server.serving import serving
from tests.support.terminal.terminals import Terminal, terminal

pytestmark = pytest.mark.anyio

LIMIT_S = 60
PROMPT = "\n>"
WIDE = "wide " * 30
TAIL = f"i=0; until [ -e go ]; do i=$((i+1)); printf 'line %3d {WIDE}\\n' $i; sleep 0.02; done"


def heads(shown: str) -> int:
    """The live calls in the window: each draws its name and its time once."""
    return sum(row.startswith("  bash · ") for row in shown.splitlines())


async def settled(window: Terminal, columns: int) -> str:
    """The window once its tail is drawn for this width, and once more after that."""
    before = ""
    while True:
        rows = window.shown.splitlines()
        cut = [row for row in rows if row.startswith("  │ line")]
        if cut and len(cut[-1]) == columns and cut[-1].endswith("…") and "»" in rows[-2:]:
            if before not in ("", cut[-1]):
                return window.shown
            before = cut[-1]
        await window.news()


@pytest.mark.parametrize("wraps", [True, False])
async def test_a_live_tail_leaves_nothing_stale_at_any_width(tmp_path: Path, wraps: bool) -> None:
    provider = Scripted([f"```bash\n{TAIL}\n```", "Done."])
    variables = {} if wraps else {"XTERM_VERSION": "XTerm(400)"}
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        url = str(served.client.base_url)
        async with terminal("chat", "--url", url, lines=40, home=tmp_path, variables=variables) as window:
            await window.ends_with(PROMPT)
            window.press("Before.\\\rit\r")
            await settled(window, 80)
            for columns in (50, 51, 79, 33, 120, 41, 20, 64):
                window.resize(columns, 40, wraps=wraps)
                shown = await settled(window, columns)
                assert heads(shown) == 1, f"at {columns} columns:\n{shown}"
                assert wraps or "> Before." in shown, "what was printed above stays"
            (tmp_path / "work/go").touch()
            shown = await window.ends_with(PROMPT)
    assert heads(shown) == 0 and shown.count("»") == 0


async def test_what_is_typed_is_drawn_once_in_a_narrower_window(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Done."])) as served:
        async with terminal("chat", "--url", str(served.client.base_url), lines=30, home=tmp_path) as window:
            await window.ends_with(PROMPT)
            words = " ".join(f"word{number}" for number in range(30))
            window.press(words)
            await window.until("word29")
            for columns in (40, 100, 30):
                window.resize(columns, 30)
                shown = await window.until_holds(lambda shown: "word29" in shown and "word0" in shown)
                flat = shown.replace("\n", "").replace(" ", "")
                assert flat.count("word0word1word2") == 1, shown
            window.press("\r")
            await window.until("Done.")
    assert "".join(words.split()) in "".join(window.shown.split())


@pytest.mark.parametrize("variables", [{}, {"TMUX": "/tmp/tmux-0/default,1,0"}])
async def test_tmux_gets_whole_drawings_since_it_wraps_a_row_as_long_as_it_ever_was(variables: dict[str, str]) -> None:
    written = StringIO()
    output = HeldOutput(written, lambda: Size(rows=20, columns=60))
    lines = ["a line of the tail", "short"]
    shown = Layout(Window(FormattedTextControl(lambda: lines[0], focusable=True)))
    with create_pipe_input() as typed:
        app = Application[None](shown, output=output, input=typed)
        drawing = Drawing(app.renderer.style, output, variables)
        for _ in lines:
            written.truncate(written.seek(0))
            with set_app(app):
                drawing.render(app, shown)
            lines.reverse()
            app.render_counter += 1  # a control keeps its text for one drawing
    assert "short" in written.getvalue() and ("\x1b[J" in written.getvalue()) == bool(variables)
