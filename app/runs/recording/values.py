"""Grants and models as parts of recordings have them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from app.core.provider import Provider
from app.policy.grants import Grant
from app.policy.permits.permissions import Permission
from app.runs.recording import parts


def grant_fields(grant: Grant) -> dict[str, Any]:
    """Return a grant as JSON, which has no word for a time that is not known; for its run it does not expire."""
    fields: dict[str, Any] = msgspec.to_builtins(replace(grant, expires=None))
    return {name: value for name, value in fields.items() if value != math.inf}


def grant_in(fields: Mapping[str, Any]) -> Grant:
    """Return the grant of such JSON. Raises ValueError."""
    return msgspec.convert(fields, Grant)


def permission_fields(permissions: Iterable[Permission]) -> list[dict[str, Any]]:
    """Return permissions as JSON; for their run they do not expire."""
    return [msgspec.to_builtins(replace(one, expires=None)) for one in permissions]


def permissions_in(fields: Sequence[Mapping[str, Any]]) -> tuple[Permission, ...]:
    """Return the permissions of such JSON. Raises ValueError."""
    return msgspec.convert(fields, tuple[Permission, ...])


def model_part(provider: Provider) -> parts.ModelPart:
    return parts.ModelPart(
        provider.model,
        provider.answers,
        native_tools=provider.native_tools,
        call_form=provider.call_form,
        calls_natively=provider.calls_natively,
        leaves_calls=provider.leaves_calls,
        suffix=provider.prompt_suffix(),
        probes=[*grammar.probes] if (grammar := provider.grammar()) else [],
        abilities=[(one.name, one.value, one.source) for one in provider.abilities()],
    )
