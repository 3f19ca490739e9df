"""Asks a process of its own to render a template, and ends it: see `sandbox`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from tools.process.signals import reset_signals

LONGEST_TEMPLATE = 1 << 16  # characters; the longest known have 20,000
_PROGRAM = Path(__file__).with_name("sandbox.py")  # not imported: only it needs jinja2
_WAIT_S = 10.0  # for the process on a busy machine; its template has `sandbox.LIMIT_S` of CPU time


class TemplateRefused(ValueError):
    """The template was not rendered. The message says why, as the rest of a sentence that begins with it."""


class Renderer(Protocol):
    """Renders one template."""

    def render(self, **variables: Any) -> str:
        """Return the text for these variables. Raises TemplateRefused."""
        ...


class TemplateProcess:
    """A template in a process of its own, as a context manager. Raises TemplateRefused."""

    def __init__(self, source: str) -> None:
        if len(source) > LONGEST_TEMPLATE:
            raise TemplateRefused(f"has {len(source):,} characters, and at most {LONGEST_TEMPLATE:,} are read")
        self._source = source

    def __enter__(self) -> Self:
        reset_signals()
        command = [sys.executable, "-I", str(_PROGRAM)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}
        )
        self._late = threading.Timer(_WAIT_S, self._process.kill)
        self._late.start()
        try:
            self._ask(self._source)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def render(self, **variables: Any) -> str:
        """Return the text for these variables."""
        return self._ask(variables)

    def _ask(self, question: Any) -> str:
        assert self._process.stdin and self._process.stdout
        line = b""
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            pass
        if not line.endswith(b"\n"):  # it ended while it wrote, or before
            ended = self._process.wait()
            raise TemplateRefused("takes too long" if ended in (-signal.SIGPROF, -signal.SIGKILL) else "fails")
        answered = json.loads(line)
        if "refused" in answered:
            raise TemplateRefused(answered["refused"])
        return str(answered["text"])

    def _end(self) -> None:
        self._late.cancel()
        self._process.kill()
        with suppress(BrokenPipeError), self._process:  # it may have ended before it read all
            pass
