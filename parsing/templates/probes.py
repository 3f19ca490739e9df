"""The calls that a template is shown: each part of them is found in the rendered text without doubt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parsing.events import Arguments

Calls = tuple[tuple[str, Arguments], ...]


def _object(**properties: str) -> dict[str, Any]:
    return {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}, "required": []}


TOOLS: Mapping[str, dict[str, Any]] = {
    "zq_lookup": _object(zk_place="string", zk_count="integer"),
    "zq_convert": _object(zk_unit="string", zk_rate="integer"),
    "zq_store": _object(zk_note="string", zk_rate="number", zk_flag="boolean", zk_list="array", zk_map="object"),
}
SINGLE: Calls = (("zq_lookup", {"zk_place": "zv Kassel", "zk_count": 4711}),)
PARALLEL: Calls = (*SINGLE, ("zq_convert", {"zk_unit": "zv miles", "zk_rate": 8086}))
# What a wrong argument form would garble.
HARD: Calls = (
    (
        "zq_store",
        {
            "zk_note": 'zv said: "it\'s 5 < 6"\n\n  {zv: [1, 2}, <b>zv</b>',
            "zk_rate": -2.5,
            "zk_flag": True,
            "zk_list": ["zv a", "zv, b"],
            "zk_map": {"zk_in": {"zk_deep": "zv \\ c"}, "zk_no": False},
        },
    ),
)


@dataclass(frozen=True)
class Probe:
    """Calls, the ids that they were given, and the text that the template makes of them as the model writes it."""

    calls: Calls
    text: str
    ids: tuple[str, ...] = ()
