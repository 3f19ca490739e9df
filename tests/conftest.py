"""What all tests share: the event loop they run on, and which of them run one after the other."""

from __future__ import annotations

import pytest

# Each starts llama.cpp, which takes every core that it finds: two at a time would only take them from each other.
WITH_A_MODEL = frozenset(
    {
        "test_app_counted_requests",
        "test_app_embedded_model",
        "test_app_prompt",
        "test_app_provider_anthropic_real",
        "test_app_two_models",
        "test_routes_attachments_real",
        "test_routes_context_real",
        "test_routes_discipline_model",
        "test_routes_guards",
        "test_routes_newcomer",
        "test_routes_page_embedded",
        "test_routes_page_first_visit",
        "test_routes_prefix",
    }
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a file stay together, because they share what is dear to start."""
    for item in items:
        module = item.path.stem
        item.add_marker(pytest.mark.xdist_group("with a model" if module in WITH_A_MODEL else module))
