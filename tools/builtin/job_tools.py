"""Tools for background jobs: `bash` with `background`, and `job_status`, `job_output`, `job_cancel`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

from parsing import Arguments
from tools.base.outcome import Progress, Result, ToolFailed, required
from tools.base.patterns import lazy_pattern
from tools.base.screen import without_controls
from tools.jobs.manager import Jobs
from tools.jobs.records import Glance, Job, JobsFailed, OutputPart
from tools.tool import Context, Run, answering
from tools.web.egress import hosts_wanted

MARKER = "#!bg"
# With the rest of its line, if that is blank; `#bg` only alone on its line: before words it is a comment.
_MARKER = lazy_pattern(rf"\s*(?:{MARKER}(?!\S)[^\S\n]*\n?|#bg[^\S\n]*(?:\n|\Z))")
OFF = "Background jobs are off here: run the command in the foreground."
PAGE = 10_000  # bytes of output that one answer shows at most, so that it fits into one result
_NOTE = 120  # room for the lines that say where it lies in the whole
_LISTED = 20


def backgroundable(foreground: Run) -> Run:
    """Wrap `bash` so that it starts a job when `background` is true. The command's text is not read here."""

    def run(arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
        chosen = answering(_asking(_start)) if arguments.get("background") else foreground
        return chosen(arguments, context)

    return run


def unmarked(arguments: Arguments) -> Arguments:
    """The arguments of `bash` with every leading `#!bg` or `#bg` turned into `background`. Idempotent: no marker is
    left for later code to act on, so the call that is approved is the call that runs."""
    command = arguments.get("command")
    if not isinstance(command, str):
        return arguments
    end = 0
    while found := _MARKER.match(command, end):  # one pass: a model may write a million
        end = found.end()
    return {**arguments, "command": command[end:], "background": True} if end else arguments


Ask = Callable[[Jobs, Arguments, Context], Awaitable[str]]


def _asking(ask: Ask) -> Callable[[Arguments, Context], Awaitable[str]]:
    async def answer(arguments: Arguments, context: Context) -> str:
        jobs = required(context.jobs, OFF)
        try:
            return await ask(jobs, arguments, context)
        except JobsFailed as failure:
            raise ToolFailed(str(failure)) from failure

    return answer


async def _start(jobs: Jobs, arguments: Arguments, context: Context) -> str:
    command = arguments["command"]
    if not command.strip():
        raise ToolFailed("There is no command to run in the background", f": write it on the line after {MARKER}.")
    job = await jobs.start(
        command,
        session=context.session,
        principal=context.principal,
        sandbox=context.sandbox,
        workspace=context.workspace,
        network=hosts_wanted(arguments),
        secrets=context.secrets,
    )
    return f"Started {job.id} in the background. job_status and job_output show it, job_cancel ends it."


async def _status(jobs: Jobs, arguments: Arguments, context: Context) -> str:
    if wanted := arguments.get("id"):
        return described(await jobs.glance(wanted, context.principal))
    mine = (await jobs.all_of(context.principal, context.session))[-_LISTED:]
    return "\n".join(map(in_one_line, mine)) or "This conversation has no background jobs."


async def _output(jobs: Jobs, arguments: Arguments, context: Context) -> str:
    lines: int | None = arguments.get("tail")
    offset: int | None = arguments.get("offset")
    size = min(PAGE, context.result_characters - _NOTE)
    if offset is None:
        return _page(await jobs.output(arguments["id"], context.principal, offset=-size, size=size), lines)
    part = await jobs.output(arguments["id"], context.principal, offset=offset, size=size)
    if part.start > offset:
        return f"[{part.start - offset:,} bytes are no longer kept]\n{_page(part)}"
    return _page(part)


async def _cancel(jobs: Jobs, arguments: Arguments, context: Context) -> str:
    return in_one_line(await jobs.cancel(arguments["id"], context.principal))


job_status, job_output, job_cancel = (answering(_asking(ask)) for ask in (_status, _output, _cancel))


def in_one_line(job: Job) -> str:
    """`job_1f..: exited after 12.1 s, exit code 0 (make test)`."""
    code = "" if job.exit_code is None else f", exit code {job.exit_code}"
    why = f", {job.reason}" if job.reason else ""
    command = " ".join(job.command.split())
    shown = command if len(command) <= 60 else command[:59] + "…"
    when = "for" if job.under_way else "after"
    return f"{job.id}: {job.state} {when} {job.elapsed_s:.1f} s{code}{why} ({shown})"


def described(glance: Glance) -> str:
    """The line above, how much it has written, and its last lines."""
    counts = f"{glance.lines:,} lines, {glance.bytes:,} bytes of output"
    return "\n".join([in_one_line(glance.job), counts + (":" if glance.tail else ""), *glance.tail])


def _page(part: OutputPart, lines: int | None = None) -> str:
    """Some output as text, with where it lies in the whole."""
    text = without_controls(part.data.decode(errors="replace")).rstrip("\n")
    if lines is not None:
        text = "\n".join(text.split("\n")[-lines:])
    if not part.bytes:
        return "(no output)"
    return f"{text}\n[up to byte {part.end:,} of {part.bytes:,}]"
