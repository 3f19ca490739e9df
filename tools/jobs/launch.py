"""Start a job's supervisor, and find it again. Blocks: call it in a thread. Linux only, like the sandbox."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tools.jobs.folder import COMMAND, HANDED_FD, JOB, LOCK, LOCK_FD, LOG, READY, SCRIPT, SCRIPT_FD, write_json
from tools.jobs.records import UNREADABLE, Job, JobsFailed, JobState, read_job, with_state, write_job
from tools.process.orphan_reaper import MARK, clear
from tools.process.process_tree import sweep_now
from tools.process.resource_limits import OPENED_FD
from tools.sandbox.box_init import moved
from tools.sandbox.network.launch import HANDED
from tools.sandbox.network.secrets import BoxSecret, Handed
from tools.sandbox.sandbox import Sandbox
from tools.sandbox.sealed_paths import HeldSeals

START_S = 10.0  # how long a supervisor may take to report that the command has been started
_LOOK_S = 0.01
_ROOT = Path(__file__).parents[__name__.count(".")]

_log = logging.getLogger(__name__)


def launch(
    folder: Path,
    job: Job,
    script: bytes,
    sandbox: Sandbox,
    workspace: Path,
    *,
    network: Sequence[str] = (),
    secrets: Sequence[BoxSecret] = (),
) -> int:
    """Make the folder and start the supervisor in it; its process id, a child of this process.

    Returns when state.json has the result of the start. Raises JobsFailed; then nothing is left of the job.
    """
    command = sandbox.command("bash", SCRIPT_FD, workspace, network=network, secrets=secrets)
    held = HeldSeals()
    try:
        held = command.seals.begin() if command.seals else held
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        with _locked(folder) as lock:
            write_job(folder, job)
            with os.fdopen(os.open(folder / SCRIPT, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(script)
            fields: dict[str, object] = {
                "prefix": (*command.before, *command.limits.begin(job.id, opens=False, principal=job.principal)),
                "argv": command.sealed(held),
                "places": command.limits.places,
                "opened": command.limits.opened,
                "opened_fd": OPENED_FD,
                "env": {**command.env, MARK: job.id, **({HANDED: str(HANDED_FD)} if command.handed else {})},
                "handed": command.handed is not None,  # itself it is in no file that has a name
                "wrapped": command.wrapped,
                "sealed": command.seals and (str(command.seals.workspace), *command.seals.names),
                "cwd": str(workspace),
                "mark": job.id,
                "time_limit_s": job.time_limit_s,
            }
            write_json(str(folder / COMMAND), fields)
            return _started(folder, lock, command.handed)
    except OSError as error:
        where = folder.parent
        message = f"The job could not be started: {error.strerror} ({where}). Make {where} writable, or free space."
        raise JobsFailed(message) from error
    finally:
        if command.seals:
            command.seals.end(held)


@contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """The folder's lock, held; a supervisor that inherits it goes on holding it."""
    lock = moved(os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield lock
    finally:
        os.close(lock)


def _started(folder: Path, lock: int, handed: Handed | None) -> int:
    ready_read, ready_write = map(moved, os.pipe())
    given = moved(handed.opened()) if handed else None
    try:
        pid = _spawn(folder, lock, ready_write, given)
    finally:
        os.close(ready_write)
        if given is not None:
            os.close(given)
    try:
        ready = select.select([ready_read], [], [], START_S)[0] and os.read(ready_read, len(READY)) == READY
    finally:
        os.close(ready_read)
    if not ready:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        clean_up_job(folder)  # the command may have started, although its supervisor could not report it
        raise JobsFailed(f"The job's supervisor did not start: {_last_log_line(folder)}")
    return pid


def _spawn(folder: Path, lock: int, ready_write: int, given: int | None) -> int:
    # Without `site` a start takes a third of the time; what it would find is on the path already.
    argv = [sys.executable, "-S", "-P", "-m", "tools.jobs.supervisor", str(folder)]
    path = os.pathsep.join(dict.fromkeys([str(_ROOT), *filter(None, sys.path)]))
    actions = (
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, ready_write, 1),
        (os.POSIX_SPAWN_OPEN, 2, str(folder / LOG), os.O_WRONLY | os.O_CREAT, 0o600),
        (os.POSIX_SPAWN_DUP2, lock, LOCK_FD),
        *(() if given is None else ((os.POSIX_SPAWN_DUP2, given, HANDED_FD),)),
    )
    # None of the server's environment: it holds secrets, and a supervisor may outlive them.
    return os.posix_spawn(argv[0], argv, {"PYTHONPATH": path}, file_actions=actions, setsid=True)


def clean_up_job(folder: Path) -> None:
    """Kill what a job left running when its supervisor ended, and remove what was made for it."""
    job = folder.name
    sweep_now(job)
    with suppress(*UNREADABLE):
        clear(json.loads((folder / COMMAND).read_text()).get("places", ()), job)


def _last_log_line(folder: Path) -> str:
    lines = (folder / LOG).read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"no answer within {START_S:g} s."


def find(folder: Path, job: Job) -> tuple[Job, int | None]:
    """The job as its files ready_write now, and a handle (pidfd) of its supervisor if that lives. Raises UNREADABLE.

    The lock shows whether the supervisor lives, so that a reused process id is not mistaken
    for it: as long as the lock is held, the number written beside it is the supervisor's.
    """
    deadline = time.monotonic() + START_S
    while True:
        job = with_state(folder, job)
        if not job.under_way:
            return job, None
        handle = _handle(job.pid) if job.state is JobState.RUNNING and job.pid else None
        if not _held(folder):
            if handle is not None:
                os.close(handle)
            return with_state(folder, job), None
        if handle is not None or time.monotonic() > deadline:
            return job, handle
        time.sleep(_LOOK_S)  # a supervisor that is just starting, or just ending


def find_all(folder: Path) -> list[tuple[Path, Job, int | None]]:
    """The jobs of a server's folder, each with its own folder and what `find` says of it."""
    found = []
    for path in sorted(folder.glob("job_*")):
        if not (path / JOB).exists():  # a server was killed before it had created this one
            shutil.rmtree(path, ignore_errors=True)
            continue
        try:
            found.append((path, *find(path, read_job(path))))
        except UNREADABLE as error:
            _log.warning("the job in %s cannot be read and is left alone: %r", path, error)
    return found


def _handle(pid: int) -> int | None:
    with suppress(ProcessLookupError):
        return os.pidfd_open(pid)
    return None


def _held(folder: Path) -> bool:
    with suppress(FileNotFoundError), (folder / LOCK).open("r") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two that look do not see each other
        except BlockingIOError:
            return True
    return False


def reap(handle: int) -> None:
    """Reap a child by its pidfd; harmless for what still runs or is not a child."""
    with suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, handle, os.WEXITED | os.WNOHANG)


def wait_for(pid: int) -> None:
    """Reap a child that has ended, or is about to."""
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
