"""The lanes, a row each."""

from __future__ import annotations

from routes.lanes.lane import Lane

LANES: tuple[Lane, ...] = ()
