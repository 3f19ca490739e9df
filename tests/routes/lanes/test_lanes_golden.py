"""Streams of the same runs, byte for byte. A change that is meant: `python -m tests.tasks.record_lanes`."""

from __future__ import annotations

import pytest

from routes.lanes.catalogue import LANES
from routes.lanes.lane import Lane
from tests.tasks.record_lanes import FOLDER, paths_and_texts


@pytest.mark.parametrize("lane", LANES, ids=lambda lane: lane.name)
def test_clients_receive_what_is_recorded(lane: Lane) -> None:
    there = {path: path.read_text() for path in (FOLDER / lane.name).iterdir()}
    assert there == paths_and_texts(lane)


def test_each_lane_has_a_folder() -> None:
    assert {path.name for path in FOLDER.iterdir() if path.is_dir()} == {lane.name for lane in LANES}
