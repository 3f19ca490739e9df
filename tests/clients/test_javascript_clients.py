"""Unmodified clients in JavaScript through a whole server of ours, on all lanes that they speak."""

from __future__ import annotations

import pytest

from tests.clients.catalogue import JAVASCRIPT_CLIENTS
from tests.clients.checks import Check
from tests.clients.harness import Client
from tests.clients.through_dragoman import TIMEOUT_S, Observations, assert_no_problems, cases, clients_of

pytestmark = pytest.mark.timeout(TIMEOUT_S)


@pytest.fixture(scope="module")
def observations(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Observations:
    return Observations(tmp_path_factory.mktemp("clients"), clients_of(request))


@pytest.mark.parametrize(("client", "way", "check"), cases(JAVASCRIPT_CLIENTS))
def test_a_client_understands_what_the_model_meant(
    observations: Observations, client: Client, way: str, check: Check
) -> None:
    assert_no_problems(observations, client, way, check)
