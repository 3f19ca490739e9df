"""The image of docs/deploy/Dockerfile, built and started (tests/tasks/image.py)."""

from __future__ import annotations

import pytest

from tests.support.nightly import only_at_night
from tests.tasks.image import LIMIT_S, WITHOUT_RIGHTS, build, missing, try_out

MOST_BYTES = 400_000_000


@only_at_night
@pytest.mark.timeout(2 * LIMIT_S)
def test_the_image_is_built_small_and_serves_without_rights() -> None:
    if reason := missing():
        pytest.skip(reason)
    assert 0 < build() < MOST_BYTES
    found = try_out()
    assert found["account"] == WITHOUT_RIGHTS
    assert found["ready"]["ready"]
    assert found["ready"]["sandbox"] in ("landlock", "bubblewrap")
    assert found["exit_code"] == 0
