"""A short fire: servers of the last release are replaced under load, one is killed. `make fire` is a longer one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.databases.postgres import require_postgres
from tests.support.nightly import only_at_night
from tests.support.replicas.nginx import needs_nginx
from tests.tasks.fire import burnt

BRIEF = ("--seconds", "12", "--clients", "6", "--every", "8", "--seed", "3")


@only_at_night
@needs_nginx
@pytest.mark.timeout(400)
def test_a_deploy_under_fire_loses_and_doubles_nothing(tmp_path: Path) -> None:
    require_postgres()
    outcome = burnt(tmp_path, BRIEF)
    outcome.print()  # `pytest -rP` shows it
    assert not outcome.wrong
    assert {"planned restart", "kill -9"} <= {one.name for one in outcome.faults}
