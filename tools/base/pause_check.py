"""The kill switch as all floors see it: one function, passed in, that whatever would begin something asks first."""

from __future__ import annotations

from collections.abc import Callable

CheckPaused = Callable[[], None]
"""Raises Paused while nothing new may begin."""


class Paused(Exception):
    """The server is paused. The message says how to go on."""

    def __init__(self) -> None:
        super().__init__("The server is paused. An admin can go on with POST /resume.")


def never_paused() -> None:
    """For whatever has no kill switch over it."""
