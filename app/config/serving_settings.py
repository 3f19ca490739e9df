"""Settings of served models: GGUF files that this server runs."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, SecretStr, field_validator

from app.core.settings_fields import seconds, setting, web_address, whole, words


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
    model_hub: str = setting(
        "https://huggingface.co", "model hub of hf:OWNER/REPO, or a mirror of it", "an https URL; http on this machine"
    )
    model_hub_token: SecretStr | None = setting(
        None, "token for gated models, for model_hub alone; prefer the environment", "printable ASCII without spaces"
    )
    model_download_mb: int = whole(
        65_536, 0, 1 << 24, "megabytes that a downloaded model has at most; 0: none is downloaded"
    )

    @field_validator("model_hub")
    @classmethod
    def _safe(cls, value: str) -> str:
        url = urlsplit(web_address(value))
        if url.scheme != "https" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
            raise ValueError("is not encrypted")
        return value.rstrip("/")

    @field_validator("model_folders")
    @classmethod
    def _absolute(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if all(Path(one).is_absolute() for one in value):
            return value
        raise ValueError("has a relative path")
