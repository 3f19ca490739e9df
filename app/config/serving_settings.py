"""Settings of served models: GGUF files that this server runs."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, field_validator

from app.core.settings_fields import seconds, whole, words


class ServingSettings(BaseModel, defer_build=True):
    """Served models."""

    model_folders: tuple[str, ...] = words(
        (), "folders of GGUF files that admins may add over HTTP; the command line may add any", "absolute paths"
    )
    model_memory_mb: int = whole(
        0, 0, 1 << 24, "megabytes for all served models together; 0 for what the machine has available"
    )
    model_idle_s: float = seconds(
        900.0, "time without requests after which a served model stops; 0 for never", low=0, high=31_536_000
    )

    @field_validator("model_folders")
    @classmethod
    def _absolute(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if all(Path(one).is_absolute() for one in value):
            return value
        raise ValueError("has a relative path")
