"""A real bash in the box: what it makes of a text, where each of its commands only tells its words."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from tools.base.outcome import Result
from tools.builtin.shell import running
from tools.sandbox.sandbox import Bubblewrap, find_sandbox
from tools.tool import Context

FOUND = find_sandbox()
TIME_LIMIT_S = 100.0
needs_box = pytest.mark.skipif(not isinstance(FOUND, Bubblewrap), reason="only boxed, bash may run anything")

# There is no program, and nearly no builtin: every command is one that was not found, and tells its words.
_TELLS = """\
enable -n $BUILTINS
command_not_found_handle() { printf '%s\\0' "$#" "$@" >&3; [[ $STATUS == 0 ]]; }
enable -n enable
"""
# Once all commands succeed and once all fail, so that each one runs behind `&&` or behind `||`.
_TELL_ALL = """\
export BUILTINS=$(compgen -b | grep -vx -e printf -e enable)
for text in $PWD/*.sh; do
    for status in 0 1; do
        PATH=/nowhere BASH_ENV=$PWD/tells STATUS=$status /bin/bash "$text" 3>>"$text.told" >/dev/null 2>&1 </dev/null
    done
done
"""
_MARKS = """\
#!/bin/bash
echo >>"$MARK"
kill -9 $PPID
"""
# Side by side: some wait until their time is over.
_MARK_ALL = """\
HERE=$PWD
for text in $PWD/*.sh; do
    (
        mkdir "$text.folder"
        cd "$text.folder"
        PATH=$HERE:$PATH MARK=$text.told timeout -s KILL 2 /bin/bash "$text" >/dev/null 2>&1 </dev/null
    ) &
    [ "$(jobs -rp | wc -l)" -lt 4 ] || wait -n
done
wait
"""


def heard(texts: Sequence[str]) -> list[set[tuple[str, ...]]]:
    """The words of each command that bash would run, per text."""
    return [_commands(told) for told in _run(texts, _TELL_ALL, {"tells": _TELLS})]


def marked(texts: Sequence[str]) -> list[str]:
    """The texts that make bash run the program `pwn`."""
    return [text for text, told in zip(texts, _run(texts, _MARK_ALL, {"pwn": _MARKS}), strict=True) if told]


def _run(texts: Sequence[str], script: str, beside: dict[str, str]) -> list[bytes]:
    """What each text left in its file `told`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in beside.items():
            (folder / file).write_text(content)
            (folder / file).chmod(0o755)
        paths = [folder / f"{number:04}.sh" for number, _ in enumerate(texts)]
        for path, text in zip(paths, texts, strict=True):
            path.write_bytes(text.encode())
        ended = asyncio.run(_bash(f"{script}echo all", Context(folder, TIME_LIMIT_S, FOUND)))
        assert ended.text.endswith("all"), ended.text
        told = [path.with_name(f"{path.name}.told") for path in paths]
        return [one.read_bytes() if one.exists() else b"" for one in told]


async def _bash(script: str, context: Context) -> Result:
    async with aclosing(running("bash", "command")({"command": script}, context)) as news:
        *_, last = [seen async for seen in news]
    assert isinstance(last, Result)
    return last


def _commands(told: bytes) -> set[tuple[str, ...]]:
    fields = iter(told.decode().split("\0"))
    return {tuple(next(fields) for _ in range(int(count))) for count in fields if count}
