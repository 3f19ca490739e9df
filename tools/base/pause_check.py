"""The kill switch as all floors see it: a function that is passed in and called before anything is started."""

from __future__ import annotations

from collections.abc import Callable

CheckPaused = Callable[[], None]
"""Raises Paused while nothing new may begin."""


class Paused(Exception):
    """The server is paused. The message says how to resume it."""

    def __init__(self) -> None:
        super().__init__("The server is paused. An admin can resume it with POST /resume.")


def never_paused() -> None:
    """Never raise: for code without a kill switch."""
