"""Delays between the attempts of a delivery."""

from __future__ import annotations

FIRST_S, FACTOR, LONGEST_S = 5.0, 4.0, 6 * 3600.0
MOST_ATTEMPTS = 10  # over some 20 hours
DISABLED_AFTER_S = 3 * 86_400.0  # without one success


def delay_s(attempts: int, chance: float, asked_s: float | None = None) -> float:
    """Return the seconds until the next attempt: exponential, between half and all of it by chance.

    `attempts` were made before; `asked_s` is what the receiver asked for, which counts if it is longer.
    """
    longest = min(LONGEST_S, FIRST_S * FACTOR ** (attempts - 1))
    return max(longest * (0.5 + chance / 2), min(asked_s or 0.0, LONGEST_S))
