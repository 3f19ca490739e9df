"""The tools `bash` and `python`: run code, return its output."""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

from parsing import Arguments
from tools.base.outcome import Progress, Result, ToolFailed
from tools.base.texts import encoded
from tools.builtin.network_hints import why_it_failed
from tools.sandbox.boxed_process import Finished, stream
from tools.sandbox.command import Program
from tools.sandbox.owner_run_paths import sealed_path_hint
from tools.sandbox.sandbox import NoSandbox
from tools.tool import Context, Run
from tools.web.egress import hosts_wanted


def running(program: Program, argument: str) -> Run:
    """A `run` that feeds the text of `argument` to `program`."""

    async def run(arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
        if isinstance(context.sandbox, NoSandbox):
            raise ToolFailed(context.sandbox.reason)
        with _script(arguments[argument]) as script:
            hosts = hosts_wanted(arguments)
            command = context.sandbox.command(
                program,
                script,
                context.workspace,
                network=hosts,
                secrets=context.secrets,
                window=context.window,
            )
            updates = stream(
                command,
                cwd=context.workspace,
                time_limit_s=context.time_limit_s,
                principal=context.principal,
                window=context.window,
            )
            async with aclosing(updates):
                async for update in updates:
                    if isinstance(update, Finished):
                        hint = why_it_failed(update.text, update.exit_code, context.sandbox, hosts)
                        seal = sealed_path_hint(update.text) if command.seals else None
                        yield _result(
                            update, context.time_limit_s, "\n".join(filter(None, (hint, seal and f"[{seal}]")))
                        )
                    else:
                        yield update

    return run


@contextmanager
def _script(code: str) -> Iterator[int]:
    """An open file without a name: code may be longer than an argument can be, and nothing is left behind."""
    written = encoded(code)
    with tempfile.TemporaryFile() as file:
        file.write(written)
        file.seek(0)
        # Away from the numbers that the launchers give files under.
        script = fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, 64)
        try:
            yield script
        finally:
            os.close(script)


def _result(finished: Finished, time_limit_s: float, hint: str) -> Result:
    text = finished.text.rstrip("\n") if finished.text.strip() else "(no output)"
    if finished.overdue:
        text += f"\n[stopped after {time_limit_s:g} s, the time limit]"
    elif finished.exit_code:
        text += f"\n[exit code {finished.exit_code}{_signal_name(finished.exit_code)}]"
    text += f"\n{hint}" if hint else ""
    return Result(finished.exit_code == 0 and not finished.overdue, text, finished.exit_code)


def _signal_name(exit_code: int) -> str:
    try:
        return f", {signal.Signals(exit_code - 128).name}"
    except ValueError:
        return ""
