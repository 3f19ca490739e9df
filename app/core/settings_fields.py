"""Fields of settings, with a description and the allowed values for `--help` and errors."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from enum import Enum
from types import UnionType
from typing import Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import Field

from app.core.rules import ApprovalMode

DAY_S = 86_400
WORDS = tuple[str, ...]  # in text separated by commas
BUILT_IN_MODELS = ("embedded:", "scripted:")  # model URLs without a host: models of dragoman itself


def setting(default: Any, help_text: str, allowed: str, **limits: Any) -> Any:
    """A field with its description and allowed values, for `--help` and errors."""
    return Field(default, description=help_text, json_schema_extra={"allowed": allowed}, **limits)


def whole(default: int | None, low: int, high: int, help_text: str) -> Any:
    return setting(default, help_text, f"a whole number from {low} to {high}", ge=low, le=high)


def number(default: float | None, low: float, high: float, help_text: str) -> Any:
    return setting(default, help_text, f"a number from {low} to {high}", ge=low, le=high, allow_inf_nan=False)


def seconds(default: float | None, help_text: str, *, low: int = 1, high: int = DAY_S) -> Any:
    return setting(default, help_text, f"seconds, from {low} to {high}", ge=low, le=high, allow_inf_nan=False)


def switch(default: bool | None, help_text: str) -> Any:
    return setting(default, help_text, "true or false")


def mode(principals: str, *modes: ApprovalMode) -> Any:
    return setting(ApprovalMode.SANDBOXED, f"approval mode of runs of {principals}", ", ".join(modes))


def words(default: tuple[str, ...], help_text: str, allowed: str) -> Any:
    return setting(default, f"{help_text}; a list, or separated by commas", allowed)


def path(default: Any, help_text: str) -> Any:
    return setting(default, help_text, "a path")


def types_in(annotation: Any) -> tuple[Any, ...]:
    """The members of a union such as `int | None`; of any other annotation the annotation itself."""
    return get_args(annotation) if get_origin(annotation) is UnionType else (annotation,)


def read_value(value: Any, annotation: Any) -> Any:
    """The value for a field of this type, from the text of a flag or variable where it is one. Raises ValueError."""
    if isinstance(value, bool) and not {int, float}.isdisjoint(types_in(annotation)):
        raise ValueError("is true or false")  # which pydantic would take for 1 or 0
    if not isinstance(value, str):
        return value
    if annotation == WORDS:
        return tuple(filter(None, map(str.strip, value.split(","))))
    if get_origin(annotation) in (tuple, Mapping):
        return json.loads(value)
    if get_origin(annotation) is Literal or (isinstance(annotation, type) and issubclass(annotation, Enum)):
        return value.lower()
    return value


def web_address(value: str) -> str:
    """Check the URL of a model server, or of a built-in model. Raises ValueError."""
    if value in BUILT_IN_MODELS:
        return value
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:  # its message may contain a password
        raise ValueError("is no URL: its host or port cannot be read") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError("is not a plain http(s) URL such as http://127.0.0.1:8080/v1, without user and password")
    if "?" in value or "#" in value:  # a path that is appended would become a part of it
        raise ValueError("has a query or a fragment")
    return value.rstrip("/")


def is_url(value: str, schemes: Collection[str] = ("http", "https")) -> bool:
    """Return True for a URL of one of these schemes with a host."""
    try:
        parts = urlsplit(value)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of its port
        return False
