"""The examples of docs/replay.md, command by command, against a server with two models."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from routes.cli.main import main
from tests import ROOT
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import Act, stream, upstream
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
PAGE = (ROOT / "docs" / "replay.md").read_text()
RUN, CALL = "run_0123456789abcdef0123", "c01234567"
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
SET = re.compile(r"```ini\n(\[\[runs\]\].*?)```", re.DOTALL)
ASKS = "```bash\necho hello\n```\n"
# What chance and the machine decide: numbers, and how wide the columns are for them.
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
RULE = '[[rules]]\ntool = "bash"\ncommands = ["echo *"]\naction = "deny"\nreason = "Nobody echoes here."\n'
LIMIT_S = 60


def models(urls: Sequence[str]) -> str:
    fields = 'model = "m"\ntool_calls = "fenced"\nwindow = 65536\n'
    return "summarise_at = 1\n" + "".join(
        f'[endpoints.model{number}]\nurl = "{url}"\n{fields}' for number, url in enumerate(urls, 1)
    )


def answers(*texts: str) -> list[Act]:
    return [stream(says(text), chunk(finish="stop"), DONE) for text in texts]


@asynccontextmanager
async def two_models(folder: Path) -> AsyncGenerator[Served, None]:
    first = answers(ASKS, "It printed hello.", ASKS, "It printed hello again.")
    async with (
        asyncio.timeout(LIMIT_S),
        upstream(*first, chats=True) as one,
        upstream(*answers(ASKS, "It printed something."), chats=True) as other,
    ):
        (folder / "dragoman.toml").write_text(models([one.base_url, other.base_url]))
        async with serving(folder, None, record=True) as served:
            yield served


def run_command(words: Sequence[str], folder: Path, url: str) -> str:
    """What a command prints, in this folder, with the server at `url`."""
    words, out = list(words), StringIO()
    target = words.pop() if ">" in words else ""
    words = [word for word in words if word != ">"]
    places = ["--data-dir", str(folder / "data"), "--workspace", str(folder / "work")]
    with chdir(folder), redirect_stdout(out), redirect_stderr(out):
        main([*words[1:], *places], {"HOME": str(folder), "DRAGOMAN_URL": url})
    if target:
        (folder / target).write_text(out.getvalue())
        return ""
    return out.getvalue()


def plain(text: str, run: str, call: str) -> list[str]:
    named = text.replace(run, RUN).replace(call, CALL)
    return [" ".join(NUMBER.sub("N", line).split()) for line in named.strip().splitlines()]


def examples() -> Iterator[tuple[str, str]]:
    """The commands of the page, each with what it prints."""
    for block in CONSOLE.findall(PAGE):
        for part in block.removeprefix("$ ").split("\n$ "):
            command, _, shown = part.partition("\n")
            yield command, shown


async def test_the_examples_of_the_page_do_what_it_shows(tmp_path: Path) -> None:
    async with two_models(tmp_path) as served:
        events = await served.chat("Print hello")
        run, url = events[0]["run"], str(served.client.base_url)
        call = next(event["call"] for event in events if event["type"] == "tool.started")
        [runs] = SET.findall(PAGE)
        (tmp_path / "set.toml").write_text(runs.replace(RUN, run))
        for command, shown in examples():
            if "--current-settings" in command:
                with (tmp_path / "dragoman.toml").open("a") as settings:
                    settings.write(RULE)
            words = shlex.split(command.replace(RUN, run))
            printed = await asyncio.to_thread(run_command, words, tmp_path, url)
            assert plain(printed, run, call) == plain(shown, RUN, CALL), printed
