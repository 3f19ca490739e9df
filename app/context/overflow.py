"""A conversation that cannot be made to fit."""

from __future__ import annotations


class ContextOverflow(Exception):
    """Nothing more may be left out. The message names what is too big and says what to do; it is for people."""
