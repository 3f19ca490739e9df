"""Unmodified clients in Python through a whole server of ours, on all lanes that they speak."""

from __future__ import annotations

import pytest

from tests.clients.catalogue import PYTHON_CLIENTS
from tests.clients.checks import Check
from tests.clients.harness import LIMIT_S, Client
from tests.clients.through_dragoman import Observations, assert_no_problems, cases

# The first test of a client waits for all of its jobs, of which each has a limit of its own.
pytestmark = pytest.mark.timeout(LIMIT_S + 10)


@pytest.fixture(scope="module")
def observations(tmp_path_factory: pytest.TempPathFactory) -> Observations:
    return Observations(tmp_path_factory.mktemp("clients"))


@pytest.mark.parametrize(("client", "way", "check"), cases(PYTHON_CLIENTS))
def test_a_client_understands_what_the_model_meant(
    observations: Observations, client: Client, way: str, check: Check
) -> None:
    assert_no_problems(observations, client, way, check)
