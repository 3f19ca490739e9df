"""The rules of a run with a real model, which knows nothing of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.provider import ProviderFailed
from app.providers.embedded import ENGINE, SMOLLM2, package_folder
from tests.serving import serving
from tests.test_app_embedded_model import LIMIT_S, embedded
from tests.test_routes_discipline import ended, history

pytestmark = pytest.mark.anyio


async def test_a_run_of_few_rounds_ends_with_text(tmp_path: Path) -> None:
    try:
        for package in (ENGINE, SMOLLM2.package):
            package_folder(package)
    except ProviderFailed as failure:
        pytest.skip(failure.message)
    async with embedded() as (_, provider), asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        for message, rounds in (("Print hello world with the shell.", 2), ("Show the files.", 1)):
            events = await served.chat(message, max_rounds=rounds)
            messages = await history(served, events)
            assert ended(events)[1].strip(), events
            assert messages[-1]["role"] == "assistant"
            assert events[-1]["rounds"] <= rounds
