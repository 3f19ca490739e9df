"""The tools `bash` and `python`: run code, return its output."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing

from parsing import Arguments
from tools.base.outcome import Progress, Result, ToolFailed
from tools.base.texts import encoded
from tools.builtin.network_hints import why_it_failed
from tools.sandbox.boxed_process import Finished, stream
from tools.sandbox.command import Program
from tools.sandbox.owner_run_paths import sealed_path_hint
from tools.sandbox.sandbox import NoSandbox
from tools.sandbox.script_file import script_file
from tools.tool import Context, Run
from tools.web.egress import hosts_wanted


def running(program: Program, argument: str) -> Run:
    """A `run` that feeds the text of `argument` to `program`."""

    async def run(arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
        if isinstance(context.sandbox, NoSandbox):
            raise ToolFailed(context.sandbox.reason)
        with script_file(encoded(arguments[argument])) as script:
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
