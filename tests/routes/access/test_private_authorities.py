"""The authorities that a server trusts for hosts of secrets, beside the system's."""

from __future__ import annotations

from pathlib import Path

import pytest

from routes.startup.run_factory import sandbox_of
from tests.support.settings import load
from tools.sandbox.sandbox import Bubblewrap


@pytest.mark.parametrize("named", [True, False])
def test_a_private_authority_is_named_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    file = tmp_path / "authority.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(file) if named else "")
    settings = load(tmp_path, {"workspace": tmp_path / "work", "data_dir": tmp_path / "data"}).settings
    box = sandbox_of(settings, people=False)
    if not isinstance(box, Bubblewrap):
        pytest.skip(f"secrets need bubblewrap: {box.level}")
    assert box.authorities == ((file,) if named else ())
