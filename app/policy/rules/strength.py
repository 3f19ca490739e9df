"""Certainty of a match."""

from __future__ import annotations

from enum import IntEnum


class Strength(IntEnum):
    """Certainty of a match: what cannot be read is POSSIBLE, which asks at least."""

    NONE = 0
    POSSIBLE = 1
    CERTAIN = 2
