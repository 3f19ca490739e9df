"""Rows of hooks: commands and URLs that the operator has asked, or informed, at points of a run."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from app.core.settings_fields import BUILT_IN_MODELS, web_address

MOST_HOOKS = 64


class HookEvent(StrEnum):
    """The points of a run at which hooks are called."""

    BEFORE_MODEL = "before_model"
    AFTER_MODEL = "after_model"
    BEFORE_TOOL = "before_tool"
    AFTER_TOOL = "after_tool"
    BEFORE_ANSWER = "before_answer"
    AFTER_ANSWER = "after_answer"


TOOL_EVENTS = (HookEvent.BEFORE_TOOL, HookEvent.AFTER_TOOL)
Word = Annotated[str, Field(min_length=1, max_length=4096)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]


def _url(value: str) -> str:
    if value in BUILT_IN_MODELS:
        raise ValueError("is a model")
    return web_address(value)


Url = Annotated[str, AfterValidator(_url), Field(max_length=2048)]


class HookRow(BaseModel, defer_build=True):
    """A row of `hooks`.

    A `guard` decides, an `observer` is only informed. `tools` are patterns of tool names, for the events of tools.
    `env` names variables of the server's environment that a command gets, `key_env` one that is sent to a URL as a
    bearer key.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    on: HookEvent
    kind: Literal["guard", "observer"]
    command: tuple[Word, ...] = Field((), max_length=64)
    url: Url | None = None
    tools: tuple[Word, ...] = Field(("*",), min_length=1, max_length=64)
    time_limit_s: float = Field(5.0, ge=0.1, le=60, allow_inf_nan=False)
    env: tuple[Variable, ...] = Field((), max_length=32)
    key_env: Variable | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("names either a command (a list of words) or a url")
        if any("\0" in word for word in self.command):
            raise ValueError("has a command with a zero byte")
        if self.tools != ("*",) and self.on not in TOOL_EVENTS:
            raise ValueError(f"has tools, which are for {' and '.join(TOOL_EVENTS)}")
        if self.kind == "guard" and self.on is HookEvent.AFTER_ANSWER:
            raise ValueError("is a guard on after_answer, when nothing is left to decide: use before_answer")
        if self.key_env and not self.url:
            raise ValueError("has key_env, which is for a url; a command gets variables by env")
        if self.env and not self.command:
            raise ValueError("has env, which is for a command; a url gets a key by key_env")
        return self
