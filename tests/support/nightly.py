"""How much is tried: a representative part in `make test`, all of it in `make nightly`."""

from __future__ import annotations

import os
from typing import TypeVar

import pytest

T = TypeVar("T")
NIGHTLY = os.environ.get("DRAGOMAN_NIGHTLY") == "1"
# Of the tests that do not take the fixture `database` of tests/conftest.py.
USUAL_DATABASE = os.environ.get("DRAGOMAN_TESTS_ON", "sqlite")


TOO_LONG = "takes too long for every change: `make nightly` runs it"
only_at_night = pytest.mark.skipif(not NIGHTLY, reason=TOO_LONG)


def at_night(nightly: T, usual: T) -> T:
    """Return `nightly` in `make nightly`, else `usual`."""
    return nightly if NIGHTLY else usual
