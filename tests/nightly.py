"""How much is tried: a representative part in `make test`, all of it in `make nightly`."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")
NIGHTLY = os.environ.get("DRAGOMAN_NIGHTLY") == "1"


def at_night(nightly: T, usual: T) -> T:
    """Return `nightly` in `make nightly`, else `usual`."""
    return nightly if NIGHTLY else usual
