"""The live tail of an output hides secrets that a colour parts, or that begin where a long line is cut."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from app.redaction.redactor import Redactor
from app.runs.live_outputs import LiveOutput
from tests.support.server.serving import serving, until
from tools.base.output_buffer import OutputBuffer

pytestmark = pytest.mark.anyio

KEY = "sk-sesame-0123456789abcdef-please"


@pytest.mark.parametrize(
    "line",
    [f"a \x1b[31m{KEY[:12]}\x1b[0m{KEY[12:]} b", f"a {KEY[:5]}\x1b[1m{KEY[5:]}", f"{KEY} {'x' * 380}"],
    ids=["colour", "bold to the end", "cut"],
)
def test_no_part_of_a_secret_is_in_the_tail(line: str) -> None:
    written = LiveOutput([Redactor([KEY])], OutputBuffer())
    assert written.output
    written.output.feed(f"\x1b[32mgreen\x1b[0m\n{line}\n".encode())
    first, second = written.tail(())
    assert first == "\x1b[32mgreen\x1b[0m"
    assert not any(KEY[at : at + 6] in second for at in range(len(KEY) - 6)), second
    assert LiveOutput([]).tail(("as it is",)) == ["as it is"]


async def test_a_coloured_secret_of_a_command_is_not_sent(tmp_path: Path) -> None:
    script = f"printf 'key \\033[31m{KEY[:9]}\\033[0m{KEY[9:]}.\\n'; sleep 600"
    async with asyncio.timeout(60), serving(tmp_path, Scripted([f"```bash\n{script}\n```\n"]), model_key=KEY) as served:
        async with aclosing(served.turn(message="x")) as turn:
            run = (await until(turn, "run.started"))["run"]
            while not (tail := (await until(turn, "tool.progress"))["tail"]):
                pass
            await served.client.post(f"/runs/{run}/cancel")
    assert tail[0].startswith("key ") and KEY[9:] not in tail[0] and KEY[:9] not in tail[0]
