"""Secrets that must appear nowhere, a whole server that has them, and everything that comes out of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil

from app.storage.database import DATABASE
from app.storage.sqlite.store import SQLiteStore
from app.storage.tokens import TokenRow
from routes.access.token_text import fingerprint, new_token
from tests import ROOT
from tests.support.server.serving import NO_TLS

KEY = 'sk-canary-"quoted"-Zeisig-4711'  # as hard to find as a key can be: JSON writes it in another way
VARIABLE = "canary-of-the-environment-0815"
FILE = "canary-of-the-data-directory-1234"


@dataclass(slots=True)
class Den:
    """A server's folder, its secrets, and what was seen of it, by where it was seen."""

    folder: Path
    token: str = ""
    pid: int = 0  # of the server
    seen: dict[str, bytes] = field(default_factory=dict)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Those that the server knows, and may be told."""
        return KEY, VARIABLE, self.token

    @property
    def environ(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "DRAGOMAN_CONFIG": str(self.folder / "dragoman.toml"),
            "CANARY_API_KEY": VARIABLE,
        }

    async def prepare(self) -> None:
        data = self.folder / "data"
        data.mkdir(mode=0o700)
        (data / "notes.txt").write_text(FILE)
        places = {"data_dir": data, "workspace": self.folder / "work", "model_key": KEY, "log_level": "trace"}
        lines = (f"{name} = {json.dumps(str(value))}\n" for name, value in places.items())
        (self.folder / "dragoman.toml").write_text("".join(["job_follow_up = false\n", *lines]))
        self.token = new_token()
        store = await SQLiteStore.open(data / DATABASE)
        await store.write([TokenRow(fingerprint(self.token), "ann", "admin", 1.0)])
        await store.close()

    def run(self, *words: str) -> str:
        """A subcommand's output."""
        command = [sys.executable, "-m", "routes", *words]
        ended = subprocess.run(command, cwd=ROOT, env=self.environ, capture_output=True, timeout=60, check=True)
        return (ended.stdout + ended.stderr).decode()

    @asynccontextmanager
    async def served(self, model_url: str, *more: str) -> AsyncGenerator[httpx2.AsyncClient, None]:
        """The server, with its output kept; a client with the token."""
        flags = ("--port", "0", "--model-url", model_url, "--model", "m", *more)
        command = (sys.executable, "-m", "routes", "serve", *flags)
        with (self.folder / "log").open("wb") as log:
            process = await create_subprocess_exec(*command, cwd=ROOT, env=self.environ, stdout=PIPE, stderr=log)
        self.pid = process.pid
        try:
            found = re.search(rb"http://localhost:\d+", await self._first_line(process))
            assert found, (self.folder / "log").read_text()
            headers = {"authorization": f"Bearer {self.token}"}
            async with httpx2.AsyncClient(
                base_url=found[0].decode(), timeout=60, trust_env=False, verify=NO_TLS, headers=headers
            ) as client:
                yield client
                self._look_at_files("while it ran")
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            self.seen["stdout"] += (await process.communicate())[0]
        self.seen["log"] = (self.folder / "log").read_bytes()
        self._look_at_files("after it ended")

    async def _first_line(self, process: Process) -> bytes:
        assert process.stdout
        self.seen["stdout"] = await process.stdout.readline()
        return self.seen["stdout"]

    def _look_at_files(self, when: str) -> None:
        """All of the data directory but for what jobs have written themselves: that is redacted when it is read."""
        for path in (self.folder / "data").rglob("*"):
            if path.is_file() and path.name not in ("notes.txt", "output"):
                with suppress(FileNotFoundError):
                    self.seen[f"{path.name} of {path.parent.name} {when}"] = path.read_bytes()

    def look_at_children(self) -> list[str]:
        """The environment of every process that the server has started; which they are."""
        commands = []
        for child in psutil.Process(self.pid).children(recursive=True):
            with suppress(OSError, psutil.NoSuchProcess):
                self.seen[f"environment of {child.pid}"] = Path(f"/proc/{child.pid}/environ").read_bytes()
                commands.append(" ".join(child.cmdline()))
        return commands

    def leaks(self) -> list[str]:
        """Where a secret is to be seen, as it is or as JSON writes it, also put together from a stream's pieces."""
        found = []
        for place, data in (self.seen | joined(self.seen)).items():
            for secret in (*self.secrets, FILE):
                forms = {secret, json.dumps(secret)[1:-1], json.dumps(json.dumps(secret)[1:-1])[1:-1]}
                found += [f"{secret} in {place}" for form in forms if form.encode() in data]
        return found


def joined(seen: dict[str, bytes]) -> dict[str, bytes]:
    """The texts of each stream's deltas, put together by kind and call, as a client does."""
    texts: defaultdict[str, str] = defaultdict(str)
    for place, data in seen.items():
        for event in events_in(data):
            if event["type"].endswith(".delta"):
                texts[f"{event['type']} {event.get('call', '')} of {place}"] += event["text"]
    return {place: text.encode("utf-8", "surrogatepass") for place, text in texts.items()}


def events_in(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in data.split(b"\n") if line.startswith(b"data: {")]
