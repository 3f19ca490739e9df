"""Templates of a trigger: the parts of a delivery's JSON that the model reads.

`{{repository.name}}` is replaced by the value at that place; numbers choose from lists (`{{commits.0.message}}`). There
is no logic. Each placeholder is replaced once: what a value contains is never read as a placeholder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tools.base.patterns import lazy_pattern

MOST_PLACEHOLDERS = 64
MOST_STEPS = 16
MOST_CHARACTERS = 32_000  # of the rendered text
_PLACEHOLDER = lazy_pattern(r"\{\{(.*?)\}\}")
_PATH = lazy_pattern(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
EXAMPLE = "Write {{repository.name}}, with names of fields and numbers of list items between dots."


class UnfitTemplate(ValueError):
    """A template that cannot be used. The message says what to do."""


class UnfitDelivery(Exception):
    """A body that a template does not fit, or that is too long. The message says what is missing."""


def placeholders(template: str) -> list[str]:
    """Return the paths that a template names. Raises UnfitTemplate."""
    found = [match[1].strip() for match in _PLACEHOLDER.finditer(template)]
    rest = _PLACEHOLDER.sub("", template)
    if "{{" in rest or "}}" in rest:
        raise UnfitTemplate(f"has {{{{ or }}}} without its counterpart. {EXAMPLE}")
    for path in found:
        if not _PATH.fullmatch(path) or path.count(".") >= MOST_STEPS:
            raise UnfitTemplate(f"{path[:64]!a} is no placeholder. {EXAMPLE}")
    if len(found) > MOST_PLACEHOLDERS:
        raise UnfitTemplate(f"has {len(found)} placeholders, at most {MOST_PLACEHOLDERS}.")
    return found


def rendered(template: str, body: Mapping[str, Any]) -> str:
    """Return the text of a delivery: the template with its values, or without one the whole body as JSON.

    Raises UnfitDelivery.
    """
    if not template.strip():
        text = json.dumps(body, ensure_ascii=False, indent=1)
    else:
        values = {path: _value(body, path) for path in placeholders(template)}
        text = _PLACEHOLDER.sub(lambda match: values[match[1].strip()], template)
    if len(text) > MOST_CHARACTERS:
        advice = "Send less, or give the trigger a template that names the parts that matter."
        raise UnfitDelivery(
            f"The text for the model has {len(text):,} characters, at most {MOST_CHARACTERS:,}. {advice}"
        )
    return text.encode(errors="replace").decode()  # JSON may hold a lone surrogate


def _value(body: Mapping[str, Any], path: str) -> str:
    value: Any = body
    for step in path.split("."):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step[:9]) < len(value):
            value = value[int(step[:9])]
        else:
            raise UnfitDelivery(f"The body has no {path}, which the trigger's template names.")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[: MOST_CHARACTERS + 1]  # what is longer is refused
