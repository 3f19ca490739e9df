"""Rows of the operator's rules on arguments: which calls are refused, or need approval each time."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

MOST_CONDITIONS = 200


class OperatorRule(BaseModel, defer_build=True):
    """A row of `rules`. It matches if each condition that it has matches one of its entries; without any, always."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tool: str = Field(min_length=1, max_length=200)
    action: Literal["deny", "ask"]
    reason: str = Field(min_length=1, max_length=400)
    name: str = Field("", max_length=64)
    paths: tuple[str, ...] = Field((), max_length=MOST_CONDITIONS)
    hosts: tuple[str, ...] = Field((), max_length=MOST_CONDITIONS)
    commands: tuple[str, ...] = Field((), max_length=MOST_CONDITIONS)
