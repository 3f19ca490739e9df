"""The table of names that no look at a workspace goes into, for reports of changes as for undos."""

from __future__ import annotations

import re
from fnmatch import translate

from tools.base.patterns import lazy_pattern
from tools.sandbox.owner_run_paths import PLACES

# Large, and made again by programs.
HEAVY = frozenset(
    {
        *("node_modules", ".venv", ".tox", "__pycache__"),
        *(".cache", ".mypy_cache", ".pytest_cache", ".ruff_cache"),
    }
)
# Run or obeyed by the owner's programs, a repository's own files among them: no undo shall ever touch them.
_PROTECTED = lazy_pattern("|".join(translate(place.name) for place in PLACES if not place.is_source), re.IGNORECASE)


def is_protected(name: str) -> bool:
    return _PROTECTED.match(name.rstrip(". ")) is not None
