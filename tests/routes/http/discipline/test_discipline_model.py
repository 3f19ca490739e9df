"""The rules of a run with a real model, which knows nothing of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.models.real_models import embedded
from tests.support.nightly import only_at_night
from tests.support.server.histories import ending_of, whole_history
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio


@only_at_night  # by day another run of this model ends with text (test_newcomer)
async def test_a_run_of_few_rounds_ends_with_text(tmp_path: Path) -> None:
    async with embedded() as (_, provider), serving(tmp_path, provider) as served:
        # However slow the machine is, and whatever the model makes of it.
        events = await served.chat("Print hello world with the shell.", max_rounds=2, time_limit_s=10)
        messages = await whole_history(served, events)
    reason, text = ending_of(events)
    assert text.strip() and messages[-1]["role"] == "assistant"
    assert reason in ("answered", "round_limit", "deadline") and events[-1]["rounds"] <= 2
