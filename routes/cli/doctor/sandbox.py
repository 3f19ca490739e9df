"""Checks of the sandbox, in which a command is really started."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from app.config.settings import Settings
from routes.cli.doctor.finding import Finding, Findings, Subject, in_thread, ok, problem, warning
from tools.base.outcome import ToolFailed
from tools.process.resource_limits import find_limits
from tools.sandbox.boxed_process import Finished, stream
from tools.sandbox.bubblewrap import Bubblewrap
from tools.sandbox.sandbox import HOW_TO_GET_ONE, Landlock, NoSandbox, Sandbox, Unboxed, find_sandbox
from tools.sandbox.script_file import script_file

COMMAND_S = 5.0
SHOWN = 200  # characters of an error
# Kernel settings that keep an account without rights from making user namespaces: name, value, what to do.
# https://github.com/containers/bubblewrap#user-namespaces
SYSCTLS = (
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "AppArmor restricts user namespaces (Ubuntu 24.04 and later): add a profile for bwrap with `userns,` to "
        "/etc/apparmor.d, or run: sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    (
        "kernel/unprivileged_userns_clone",
        "0",
        "User namespaces are off for accounts without rights; run: sysctl kernel.unprivileged_userns_clone=1",
    ),
    ("user/max_user_namespaces", "0", "User namespaces are off; run: sysctl user.max_user_namespaces=10000"),
)
# A script that connects to this machine, which a box without network must not reach.
CONNECT = "import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)\nprint('reached')\n"


def find(settings: Settings) -> Sandbox | NoSandbox:
    """As the server finds it, but without making the workspace."""
    return find_sandbox(
        hidden=[settings.data_dir],
        unsafe=settings.unsafe_no_sandbox,
        network=settings.sandbox_network,
        private_hosts=settings.private_hosts,
        closed_ports=[settings.port],
    )


async def sandbox(subject: Subject) -> Findings:
    """The best sandbox that works here; a command in it, and its network, which must be off."""
    box = await in_thread(find, subject.settings)
    if isinstance(box, NoSandbox):
        return [problem(box.reason[: box.reason.find(HOW_TO_GET_ONE)].strip(), HOW_TO_GET_ONE), *_forbidden()]
    if isinstance(box, Unboxed):
        advice = "Remove unsafe_no_sandbox, unless this whole machine is a sandbox."
        return warning("commands run without a sandbox, as unsafe_no_sandbox says", advice)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        script = CONNECT.format(port=listener.getsockname()[1])
        answer = await _run(box, "echo started")
        if answer.exit_code or "started" not in answer.text:
            return problem(f"{box.level}: a command does not start: {_end(answer.text)}", HOW_TO_GET_ONE)
        reaches = "reached" in (await _run(box, script, python=True)).text
    if reaches and isinstance(box, Bubblewrap) and not box.networked:
        return problem(f"{box.level}: a command reaches this machine's ports", "Report this as a bug of the sandbox.")
    if not isinstance(box, Bubblewrap):
        found = f"{box.level}: commands start; files are protected, the network is not separate"
        return [warning(found, "Install bubblewrap, which separates more."), *_forbidden()]
    network = "public hosts are open, as sandbox_network says" if box.networked else "the network is off"
    return ok(f"{box.level} ({box.bwrap}): commands start, {network}")


async def _run(box: Bubblewrap | Landlock, text: str, *, python: bool = False) -> Finished:
    """Run a script in a workspace of its own, of which nothing is left."""
    with tempfile.TemporaryDirectory(prefix="dragoman-doctor-") as folder, script_file(text.encode()) as script:
        workspace = await in_thread(Path.resolve, Path(folder))
        command = box.command("python3" if python else "bash", script, workspace)
        last = Finished(1, "", 0.0)
        try:
            async for piece in stream(command, cwd=workspace, time_limit_s=COMMAND_S):
                if isinstance(piece, Finished):
                    last = piece
        except ToolFailed as failure:
            return Finished(1, str(failure), 0.0)
        return last


def _end(text: str) -> str:
    return " ".join(text.split())[-SHOWN:] or "it printed nothing"


def _forbidden() -> Iterator[Finding]:
    """Kernel settings that are in the way of bubblewrap."""
    if os.geteuid() == 0:
        return
    for name, wrong, advice in SYSCTLS:
        path = Path("/proc/sys", name)
        if path.exists() and path.read_text().strip() == wrong:
            yield warning(f"{name.replace('/', '.')} is {wrong}", advice, subject="kernel")


def command_limits(_: Subject) -> Findings:
    """The bounds of processes and memory of one command."""
    limits = find_limits()
    if limits.bounds("memory") and limits.bounds("pids"):
        return ok(f"a command has {limits.describe()}")
    advice = (
        "Give the server a control group that it may divide: in systemd Delegate=yes, in a container a writable "
        "/sys/fs/cgroup; else a command may take all memory."
    )
    return warning(f"no control group; a command has {limits.describe()}", advice)
