"""All tests, each in the room of what it tests: `tests/<floor>/<room>`. What several use is in `tests/support`."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent  # of the checkout
