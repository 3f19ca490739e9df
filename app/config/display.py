"""Settings as text: values in the syntax of dragoman.toml, and errors as sentences."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import BaseModel

from app.config.sources import Given
from tools.base.patterns import lazy_pattern

if TYPE_CHECKING:  # imported by app.config.settings anyway
    from pydantic import ValidationError
    from pydantic.fields import FieldInfo

SECRET = frozenset(  # not repeated in errors: it may contain a key
    {"model_key", "search_key", "memory_embeddings_key", "metrics_token", "endpoints"}
    | {"database_url", "secret_key", "model_hub_token", "oidc"}
)
MAX_SHOWN = 80
PLAIN_KEY = lazy_pattern(r"[A-Za-z0-9_-]+")


def as_written(value: object) -> str:
    """The value of a setting, with the syntax of a settings file for lists, tables and booleans."""
    match value:
        case None:
            return "(not set)"
        case tuple():
            return f"[{', '.join(map(_entry, value))}]"
        case Mapping():
            return _table({name: _entry(one) for name, one in value.items()})
        case BaseModel():
            return _entry(value)
        case bool():
            return str(value).lower()
    return str(value)  # str of a secret is its mask


def _entry(value: object) -> str:
    if isinstance(value, BaseModel):
        fields = value.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        return _table({name: json.dumps(one) for name, one in fields.items()})
    return json.dumps(value)


def _table(written: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{_key(name)} = {one}" for name, one in written.items()) + "}"


def _key(name: str) -> str:
    return name if PLAIN_KEY.fullmatch(name) else json.dumps(name)


def wrong_values(wrong: ValidationError, given: Mapping[str, Given], fields: Mapping[str, FieldInfo]) -> list[str]:
    """One sentence per wrong value: its name, origin, value and entry, and the allowed values."""
    sentences = {}
    for error in wrong.errors():
        name, *inside = error["loc"]
        if name in sentences:
            continue
        extra = fields[str(name)].json_schema_extra
        allowed = extra["allowed"] if isinstance(extra, dict) else "another value"
        found = given.get(str(name))
        problem = f"({found.origin}) is {_shown(str(name), found.value)}" if found else "has no default on this machine"
        sentences[name] = f"{name} {problem}{_where(inside, error['msg'])}. Allowed: {allowed}."
    return list(sentences.values())


def _where(inside: list[int | str], why: str) -> str:
    """The wrong entry of a list (counted from 1) or a table, its field, and the reason."""
    if not inside:
        return ""
    entry = f"entry {inside[0] + 1}" if isinstance(inside[0], int) else ascii(inside[0][:MAX_SHOWN])
    of = f", its {inside[1]!a}" if len(inside) > 1 else ""
    return f"; wrong is {entry}{of} ({why.removeprefix('Value error, ')})"


def _shown(name: str, value: object) -> str:
    if name in SECRET or "@" in str(value):
        return "a value that is not shown here"
    written = ascii(value)
    return written if len(written) <= MAX_SHOWN else written[: MAX_SHOWN - 3] + "..."
