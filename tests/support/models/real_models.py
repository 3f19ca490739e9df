"""Real model servers: the embedded one, and llama.cpp with the weights and the template that a test wants."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from app.core.provider import ModelRequest, Piece, Provider, ProviderFailed
from app.models.embedded.provider import EmbeddedProvider
from app.models.embedded.supervisor import ENGINE, SMOLLM2, EmbeddedModel, package_folder
from app.models.http.client import model_client
from tests import ROOT

LIMIT_S = 100
SERVER = Path(__file__).with_name("llama_server.py")
GEMMA = ROOT / ".cache/models/gemma/gemma.gguf"


def missing(what: str) -> None:
    """The test is skipped and says why; CI skips none."""
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(what)


def need_embedded() -> None:
    """The packages of the embedded model."""
    try:
        for package in (ENGINE, SMOLLM2.package):
            package_folder(package)
    except ProviderFailed as failure:
        missing(failure.message)


def need_gemma() -> None:
    """The weights of another model."""
    if not GEMMA.exists():
        missing("The second model is not installed: run `make real-servers`.")


@asynccontextmanager
async def embedded(model: EmbeddedModel | None = None) -> AsyncGenerator[tuple[EmbeddedModel, EmbeddedProvider], None]:
    """A model that runs, with its provider; the whole test is bounded by it."""
    need_embedded()
    async with asyncio.timeout(LIMIT_S):
        model = model or EmbeddedModel()
        provider = EmbeddedProvider(model_client("http://127.0.0.1"), model)
        try:
            await model.start()  # which may take longer than a look-up waits
            yield model, provider
        finally:
            await provider.close()


async def pieces_of(provider: Provider, request: ModelRequest) -> list[Piece]:
    async with aclosing(provider.stream(request)) as pieces:
        return [piece async for piece in pieces]


@dataclass(frozen=True, slots=True)
class Served:
    """How llama.cpp serves a model. `says`: the model can say nothing else, once tools are not asked for.

    `reasoning`: llama.cpp's number of how thoughts come; 0 is as they are, 3 apart.
    """

    weights: str = ""
    name: str = "small"
    template: str = ""
    says: str = ""
    reasoning: int = 3
    jinja: bool = True
    slots: int = 1
    context: int = 1024
    port: int = 0


class LlamaServer:
    """A llama.cpp server in a process of its own; one that is started again has the same address."""

    def __init__(self, served: Served | None = None) -> None:
        self.served = served or Served()
        self.base_url = ""
        self._child: subprocess.Popen[str] | None = None

    def start(self, served: Served | None = None) -> LlamaServer:
        """Wait until it listens; now as it is `served`, if that is another way."""
        self.served = served or self.served
        port = int(self.base_url.rpartition(":")[2].removesuffix("/v1")) if self.base_url else 0
        weights = self.served.weights or str(package_folder(SMOLLM2.package) / SMOLLM2.file)
        told = asdict(self.served) | {"weights": weights, "port": port, "parent": os.getpid()}
        self._child = subprocess.Popen(
            [sys.executable, str(SERVER), json.dumps(told)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._child.stdout
        address = self._child.stdout.readline().strip()
        assert address, f"{self.served.name} did not start"
        self.base_url = f"{address}/v1"
        return self

    def kill(self) -> None:
        """As a machine without memory does it. Dead when this returns; a second time is nothing."""
        child, self._child = self._child, None
        if child and child.stdout:
            child.send_signal(signal.SIGKILL)
            child.wait()
            child.stdout.close()

    def __enter__(self) -> LlamaServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
