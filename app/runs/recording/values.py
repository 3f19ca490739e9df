"""Grants as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from app.policy.grants import Grant


def grant_fields(grant: Grant) -> dict[str, Any]:
    """Return a grant as JSON, which has no word for a time that is not known."""
    fields: dict[str, Any] = msgspec.to_builtins(grant)
    return {name: value for name, value in fields.items() if value != math.inf}


def grant_in(fields: Mapping[str, Any]) -> Grant:
    """Return the grant of such JSON. Raises ValueError."""
    return msgspec.convert(fields, Grant)
