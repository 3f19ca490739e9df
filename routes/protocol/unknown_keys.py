"""Drop unknown keys that no error message would name: 95,000 of them are as many errors, of which five are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

MOST_NAMED = 5  # errors in one message
MOST_ITEMS = 4_096  # of any list of a model: behind them it is refused without a look at the others
FEW = 64  # keys of an object that are not counted

Models = tuple[type[BaseModel], ...]

_PARTS = 'send files as parts of message, such as {"type": "image", "data": BASE64}'
HINTS = dict.fromkeys(("attachments", "files", "images"), _PARTS)  # other APIs' fields beside `message`


def with_few_unknown(kind: type[BaseModel], fields: Any) -> Any:
    """Return the value for a model of this kind, with at most MOST_NAMED keys in each object that are no fields of it.

    The first errors of a validation stay the same. Objects that may have any keys are left as they are.
    """
    return _bounded((kind,), fields)


def _bounded(kinds: Models, value: Any) -> Any:
    if isinstance(value, list):
        return [*(_bounded(kinds, each) for each in value[:MOST_ITEMS]), *value[MOST_ITEMS:]]
    if not isinstance(value, dict):
        return value
    models = _models_in(kinds)
    if len(value) > FEW:
        value = _with_first_unknown(value, models)
    return {name: _bounded(inner, each) if (inner := models.get(name)) else each for name, each in value.items()}


def _with_first_unknown(value: Mapping[str, Any], known: Mapping[str, Models]) -> dict[str, Any]:
    found, unknown = dict[str, Any](), 0
    for name, each in value.items():
        unknown += name not in known
        if name in known or unknown <= MOST_NAMED:
            found[name] = each
    return found


@lru_cache(maxsize=256)
def _models_in(kinds: Models) -> Mapping[str, Models]:
    """The models that the values of their fields may be, by the names under which the fields are sent.

    None where a value may be an object with keys of any name.
    """
    found = dict[str, Models]()
    for name, field in (row for kind in kinds for row in kind.model_fields.items()):
        types = [*_types_in(field.annotation)]
        free = any(issubclass(each, Mapping) for each in types)
        models = () if free else tuple(each for each in types if issubclass(each, BaseModel))
        for sent in {name, field.alias or name}:
            found[sent] = found.get(sent, ()) + models
    return found


def _types_in(annotation: Any) -> Iterator[type]:
    """Yield the classes of which a value with this annotation, or an item of it, may be."""
    if get_origin(annotation) in (Union, UnionType, Annotated, list, tuple):
        for each in get_args(annotation):
            yield from _types_in(each)
    elif isinstance(origin := get_origin(annotation) or annotation, type):
        yield origin
