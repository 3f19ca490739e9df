"""Every place that sends words to a model is known, so that labels are checked in front of each."""

from __future__ import annotations

import ast

from tests.support.sources import sources

# Where a provider's server is sent words: each stands behind a route's check, or sends none of a conversation.
SITES = {
    "app/models/endpoints/failover.py": "the check itself",
    "app/models/endpoints/vision_fallback.py": "called by it",
    "app/models/embedded/provider.py": "below it",
    "app/models/server_connection.py": "below it",
    "app/models/tokens/counter.py": "reached by a route's `counter`",
    "app/runs/agent.py": "asks a route",
    "app/runs/relay/relay_agent.py": "asks a route",
    "app/budget/side_query.py": "asks a route",
    "app/diagnosis/examination.py": "sends fixed texts without data",
    "routes/cli/doctor/models.py": "sends a fixed text without data",
}
WORDS = frozenset({"stream", "count_tokens", "_count_tokens"})


def test_every_place_that_sends_words_to_a_model_is_known() -> None:
    found = set[str]()
    for source in sources():
        if not source.path.startswith(("app/", "routes/")):
            continue
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WORDS:
                of = ast.unparse(node.func.value)
                if any(word in of.lower() for word in ("provider", "route", "says", "_chat", "chat", "self")):
                    found.add(source.path)
    found -= {
        "app/models/http/client.py",
        "app/runs/run_context.py",
        "app/runs/emitter.py",
        "routes/terminal/event_client.py",
    }
    assert found <= SITES.keys(), "A new place asks a model: let it use a route of Models, and name it in SITES."
