"""Settings from flags, environment and a file, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.config.settings import Loaded, load_settings
from app.config.sources import SettingsError

HOME = {"HOME": "/home/someone"}


def load(
    folder: Path, flags: dict[str, object] | None = None, environ: dict[str, str] | None = None, toml: str | None = None
) -> Loaded:
    if toml is not None:
        (folder / "dragoman.toml").write_text(toml)
    return load_settings(flags or {}, HOME | (environ or {}), folder=folder)


def problems(folder: Path, *args: object, **kwargs: object) -> str:
    with pytest.raises(SettingsError) as raised:
        load(folder, *args, **kwargs)  # type: ignore[arg-type]
    return str(raised.value)
