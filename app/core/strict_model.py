"""The base of models that clients send as JSON."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """Refuses unknown fields and converts no types. The validator is built at the first use, not at every start."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)
