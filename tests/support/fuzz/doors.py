"""The doors by which untrusted bytes come in, a row each: what is made for it, and how it is sent."""

from __future__ import annotations

import random

from tests.support.fuzz.files import (
    document_case,
    page_case,
    send_to_documents,
    send_to_exports,
    send_to_tools,
    tool_case,
)
from tests.support.fuzz.judging import Case, Door
from tests.support.fuzz.requests import (
    gateway_case,
    import_case,
    lane_case,
    route_case,
    rules_case,
    send_to_gateway,
    send_to_imports,
    send_to_lane,
    send_to_route,
    send_to_rules,
)
from tests.support.fuzz.streams import LANES
from tests.support.fuzz.upstreams import (
    mcp_case,
    model_answer,
    models_case,
    send_to_mcp,
    send_to_models,
    send_to_web,
    web_case,
)

DOORS: dict[str, Door] = {
    door.name: door
    for door in (
        model_answer("openai", ("openai", "native"), ("/chat",)),
        model_answer("anthropic", ("anthropic",), ("/chat",)),
        model_answer("relays", ("openai", "native", "anthropic"), tuple(LANES)),
        Door("lanes", lane_case, send_to_lane),
        Door("routes", route_case, send_to_route),
        Door("mcp", mcp_case, send_to_mcp, 500_000),
        Door("gateway", gateway_case, send_to_gateway, 500_000),
        Door("tools", tool_case, send_to_tools, 500_000),
        Door("exports", page_case, send_to_exports),
        Door("imports", import_case, send_to_imports),
        Door("rules", rules_case, send_to_rules, 100_000),
        Door("documents", document_case, send_to_documents),
        Door("models", models_case, send_to_models),
        Door("web", web_case, send_to_web),
    )
}


TIMES = 4  # larger than its bound is a case at most


def case_of(door: Door, seed: int, most: int | None = None) -> Case:
    """The case of a seed, always the same."""
    rng, most = random.Random(f"{door.name}/{seed}"), most or door.most
    while len((case := door.generate(rng, most)).body) > TIMES * most:
        most //= 2  # what is large was taken often
    return case
