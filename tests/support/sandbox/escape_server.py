"""A server that is attacked by its own commands: what is worth attacking, and what each attack did to it.

`python -m tests.support.sandbox.escape_server LEVEL FOLDER SECRET` writes JSON, a line per attack: name, harms, output.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import ExitStack, aclosing, suppress
from pathlib import Path
from uuid import uuid4

from msgspec.structs import replace

from tests.support.sandbox.escape_forms import Attack
from tests.support.sandbox.escapes import attacks
from tests.support.sandbox.processes import command_line, ended, pids
from tools.base.outcome import Result
from tools.base.screen import Window
from tools.builtin.shell import running
from tools.process.resource_limits import NO_LIMITS, ResourceLimits, find_limits
from tools.sandbox.landlock import SCOPED_ABI, Landlock, find_landlock
from tools.sandbox.sandbox import Bubblewrap, NoSandbox, Sandbox, Unboxed, find_sandbox
from tools.sandbox.sandbox_mounts import visible_python
from tools.tool import Context

SECRET = os.environ.get("SECRET_OF_THE_SERVER", "")
LIMITS = ResourceLimits(pids=64, memory_bytes=128 << 20, scratch_bytes=16 << 20, file_bytes=8 << 20)
OLD_ABI = 3  # without scopes for signals: older kernels, played on this one
TIME_LIMIT_S = 20
DYING_S = 10  # where all must die: a slow kernel is not an escape
LEFT_S = 0.2  # where something may be left
bash = running("bash", "command")


def level(name: str, hidden: Path) -> Sandbox | NoSandbox:
    if name == "landlock-old":
        old = Landlock(visible_python(), (hidden,), find_limits(LIMITS), abi=OLD_ABI)
        found = find_landlock(old)
        return NoSandbox(found) if isinstance(found, str) else found
    return find_sandbox(unsafe=name == "none", levels=[name], hidden=[hidden], limits=LIMITS)


class Target:
    """A folder with secrets around a workspace, listeners, a neighbour process; `harms` says what has changed."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.dying_s = LEFT_S
        self.workspace, self.data, self.home = folder / "workspace", folder / "data", folder / "home"
        for path in (self.workspace, self.data, self.home):
            path.mkdir()
        for path in (self.data / "secret", self.home / "key"):
            path.write_text(SECRET)
            path.chmod(0o600)
        (self.workspace / "planted_link").symlink_to(self.data / "secret")
        (self.workspace / "planted_hard_link").hardlink_to(self.home / "key")
        self.shared = Path(f"/dev/shm/dragoman-test-{uuid4().hex}")
        self.shared.write_text(SECRET)
        stack.callback(self.shared.unlink)
        self.neighbour = talker()
        stack.callback(self._end_neighbour)
        self.signals: list[int] = []
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGURG, signal.SIGIO):
            signal.signal(number, lambda number, _: self.signals.append(number))
        self.listeners = [stack.enter_context(one) for one in self._listening()]
        self.segment = segment(stack)
        self.terminal = own_terminal()
        keep_key()
        os.set_inheritable(os.open(self.data / "secret", os.O_RDONLY), True)
        self.marker = f"1000.{uuid4().int}"
        self.before = self._state()

    def _listening(self) -> Iterator[socket.socket]:
        loopback, own = ("127.0.0.1", 0), str(self.folder / "socket")
        addresses: tuple[tuple[socket.SocketKind, tuple[str, int] | str], ...] = (
            *((socket.SOCK_STREAM, loopback), (socket.SOCK_DGRAM, loopback)),
            *((socket.SOCK_STREAM, own), (socket.SOCK_DGRAM, f"{own}.dgram"), (socket.SOCK_STREAM, f"\0{own}")),
        )
        for kind, address in addresses:
            made = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET, kind)
            made.bind(address)
            if kind is socket.SOCK_STREAM:
                made.listen(64)
            made.setblocking(False)
            yield made

    def _end_neighbour(self) -> None:
        with self.neighbour:
            self.neighbour.kill()

    def words(self) -> dict[str, object]:
        """What the scripts of attacks name in braces."""
        tcp, udp, *_ = (one.getsockname()[1] for one in self.listeners[:2])
        return {
            **{name: getattr(self, name) for name in ("folder", "workspace", "data", "home", "shared", "segment")},
            **{"server": os.getpid(), "neighbour": self.neighbour.pid, "marker": self.marker},
            **{"tcp": tcp, "udp": udp, "socket": self.folder / "socket", "python": sys.executable},
            "core": Path("/proc/sys/kernel/core_pattern").read_text().strip(),
        }

    def harms(self, text: str) -> list[str]:
        """What an attack that printed `text` has done; afterwards all is as before."""
        found = []
        if SECRET in text:
            found.append("a secret was read")
        if "ESCA" + "PED" in text:
            found.append("it says so")
        if self.signals:
            found.append(f"the server got signals {self.signals}")
            self.signals.clear()
        if select.select([self.terminal], [], [], 0)[0]:
            found.append(f"its terminal got {os.read(self.terminal, 99)!r}")
        if not answers(self.neighbour):
            found.append("another process was ended")
            self._end_neighbour()
            self.neighbour = talker()
        found += [f"a listener was reached: {one.family.name} {one.type.name}" for one in self.listeners if heard(one)]
        if self._state() != self.before:
            found.append("files outside were changed")
            self._restore()
        # bubblewrap tells of its end before the kernel has ended all that is in the box.
        mine = [pid for pid in pids() if self.marker.encode() in command_line(pid)]
        if left := [pid for pid in mine if not ended(pid, self.dying_s)]:
            found.append("a process was left behind")
            for pid in left:
                with suppress(ProcessLookupError):  # it may end by itself by now
                    os.kill(pid, signal.SIGKILL)
        return found

    def _watched(self) -> list[Path]:
        return [self.folder, *(path for path in sorted(self.folder.rglob("*")) if not self._is_work(path)), self.shared]

    def _is_work(self, path: Path) -> bool:
        return path.is_relative_to(self.workspace) and path != self.workspace

    def _state(self) -> list[tuple[str, int, float, bytes]]:
        state = []
        for path in self._watched():
            status = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
            state.append((str(path), status.st_mode, status.st_mtime if content else 0, content))
        return state

    def _restore(self) -> None:
        for name, mode, changed, content in self.before:
            path = Path(name)
            if stat.S_ISREG(mode):
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(content)
                os.utime(path, (changed, changed))
            if path.exists() and not path.is_symlink():
                path.chmod(stat.S_IMODE(mode))
        known = {name for name, *_ in self.before}
        for path in self._watched():
            if str(path) not in known:
                path.unlink()


def segment(stack: ExitStack) -> int:
    """The id of shared memory (System V) that holds the secret."""
    libc = ctypes.CDLL(None)
    libc.shmat.restype = ctypes.c_void_p
    made = int(libc.shmget(0, 4096, 0o1600))
    ctypes.memmove(libc.shmat(made, None, 0), SECRET.encode(), len(SECRET))
    stack.callback(libc.shmctl, made, 0, None)
    return made


def own_terminal() -> int:
    """A terminal that the server has been started in, as far as its commands can see. What is typed is read at once."""
    _, mine = os.openpty()
    os.setsid()
    fcntl.ioctl(mine, termios.TIOCSCTTY, 0)
    tty.setraw(mine)
    return mine


def keep_key() -> None:
    """A key with the secret in a session's ring of keys, which children inherit."""
    libc, arm = ctypes.CDLL(None), os.uname().machine == "aarch64"
    libc.syscall(219 if arm else 250, 1, None)
    libc.syscall(217 if arm else 248, b"user", b"dragoman-test", SECRET.encode(), ctypes.c_size_t(len(SECRET)), -3)


def heard(listener: socket.socket) -> bool:
    with suppress(BlockingIOError):
        if listener.type is socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            listener.recv(64)
        return True
    return False


def talker() -> subprocess.Popen[bytes]:
    """A process that says what it is told."""
    return subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


def answers(process: subprocess.Popen[bytes]) -> bool:
    """Whether it lives: one that was killed may take a moment to die, but says nothing more."""
    assert process.stdin and process.stdout
    with suppress(BrokenPipeError):
        process.stdin.write(b"?")
        return bool(select.select([process.stdout], [], [], DYING_S)[0]) and process.stdout.read(1) == b"?"
    return False


async def suffered(attack: Attack, target: Target, context: Context) -> tuple[list[str], str]:
    script = attack.script
    for word, value in target.words().items():
        script = script.replace(f"{{{word}}}", str(value))
    context = replace(context, window=Window() if attack.in_terminal else None)
    async with aclosing(bash({"command": script}, context)) as news:
        *_, last = [seen async for seen in news]
    assert isinstance(last, Result)
    return target.harms(last.text), last.text


async def main(name: str, folder: str, _on_the_command_line: str) -> None:
    with ExitStack() as stack:
        target = Target(Path(folder), stack)
        sandbox = level(name, target.data)
        if isinstance(sandbox, NoSandbox):
            print(json.dumps({"off": sandbox.reason}))
            return
        limits = NO_LIMITS if isinstance(sandbox, Unboxed) else sandbox.limits
        bounds = {what: limits.bounds(what) for what in ("pids", "memory")}
        target.dying_s = DYING_S if isinstance(sandbox, Bubblewrap) or bounds["pids"] else LEFT_S
        deaf = isinstance(sandbox, Landlock) and sandbox.abi < SCOPED_ABI
        print(json.dumps({"boxed": sandbox.boxed, "old": deaf, **bounds}), flush=True)
        context = replace(Context(target.workspace), sandbox=sandbox, time_limit_s=TIME_LIMIT_S)
        for attack in attacks(name):
            harms, text = await suffered(attack, target, context)
            print(json.dumps({"name": attack.name, "harms": harms, "text": text}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
