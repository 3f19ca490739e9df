"""What a person says of an endpoint: in the settings, at the command line, over HTTP."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from app.settings_fields import DAY_S

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"  # without a slash: `endpoint/model` must be readable

WireFormat = Literal["auto", "openai", "anthropic"]


class EndpointSpec(BaseModel):
    """One server of models. What is None, empty or `auto` is found out.

    Keys are never written here: `key_env` names variables of the environment, `key_file` files with one key each.
    `max_requests` are those at a time; 0 is for no limit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, protected_namespaces=())

    url: str = Field(min_length=1, max_length=2048)
    model: str | None = Field(default=None, min_length=1, max_length=256)
    models: tuple[str, ...] = ()
    key_env: tuple[str, ...] = ()
    key_file: tuple[str, ...] = ()
    format: WireFormat = "auto"
    tool_calls: Literal["auto", "native", "fenced"] = "auto"
    images: bool | None = None
    pdf: bool | None = None
    window: int | None = Field(default=None, ge=512, le=10**8)
    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False)
    max_requests: int | None = Field(default=None, ge=0, le=100_000)
    inactivity_s: float | None = Field(default=None, ge=1, le=DAY_S, allow_inf_nan=False)


class Price(BaseModel):
    """What a million tokens cost; `cached` and `cache_written` count like `input` where they are not given."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    input: float = Field(ge=0, le=10**6, allow_inf_nan=False)
    output: float = Field(ge=0, le=10**6, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, le=10**6, allow_inf_nan=False)
    cache_written: float | None = Field(default=None, ge=0, le=10**6, allow_inf_nan=False)
