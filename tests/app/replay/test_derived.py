"""Runs that were not recorded are replayed of their log alone, without a difference, or it is said why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.replay.derived import NEEDS_CODE, NEEDS_RECORDING
from app.replay.recording import UnusableRecording
from tests.support.golden.playing import play
from tests.support.golden.stories import STORIES

pytestmark = pytest.mark.anyio
UNUSABLE = {
    "canary": NEEDS_CODE,
    "context_summarised": NEEDS_RECORDING,
    "empty_reply": NEEDS_RECORDING,
    "judge": NEEDS_RECORDING,
    "no_answer": NEEDS_RECORDING,
    "round_limit": NEEDS_RECORDING,
    "screened": NEEDS_RECORDING,
}


@pytest.mark.parametrize("name", sorted(STORIES.keys() - UNUSABLE.keys()))
async def test_a_log_is_replayed_without_difference(tmp_path: Path, name: str) -> None:
    await play(STORIES[name], tmp_path, record=False)


@pytest.mark.parametrize("name", UNUSABLE)
async def test_what_only_a_recording_has_is_said(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnusableRecording, match=re.escape(UNUSABLE[name])):
        await play(STORIES[name], tmp_path, record=False)
