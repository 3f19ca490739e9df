"""Options of a request for its run's agent, stored with the run so that the same agent can be built again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import msgspec
from pydantic import BeforeValidator, Field, PrivateAttr, Strict

from app.context.prompt import Override
from app.context.run_rules import Channel
from app.context.system_text import SystemText, as_fields
from app.core.profile_spec import LONGEST_PROFILE, RunDefaults, SessionModes
from app.core.rules import WhenAbsent
from app.core.strict_model import StrictModel
from app.profiles.pinned import Pinned
from app.runs.discipline.run_terminals import TerminalSize

PINNED = "pinned"  # in the policy of a run, beside its options
LONGEST_NAME = 128  # characters of a client's tool, namespace included
MOST_CLIENT_TOOLS = 512


class ClientTool(StrictModel):
    """A tool that the client runs itself. `parameters` is a JSON Schema of type object."""

    name: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})


class RunOptions(RunDefaults, SessionModes):
    """All are optional; the settings hold where one is left out. A new option of a run is one field here.

    `pinned`: what the profiles of the run add to the options. No client can send it.
    """

    profile: str | None = Field(default=None, max_length=LONGEST_PROFILE)
    tools: list[str] | None = Field(default=None, max_length=1024)
    when_absent: Annotated[WhenAbsent, Strict(strict=False)] = WhenAbsent.WAIT
    mode: Literal["act", "plan"] = "act"
    without_vision: Literal["refuse", "describe"] = "refuse"
    record: bool | None = None
    channel: Channel | None = None
    terminal: TerminalSize | None = None
    permissions: list[Annotated[str, Field(max_length=64)]] | None = Field(default=None, max_length=200)
    time_zone: str | None = Field(default=None, max_length=64)
    client_tools: list[ClientTool] | None = Field(default=None, max_length=MOST_CLIENT_TOOLS)
    system: Annotated[SystemText | None, BeforeValidator(as_fields)] = None
    _pinned: Pinned | None = PrivateAttr(default=None)

    @property
    def pinned(self) -> Pinned | None:
        return (self.__pydantic_private__ or {}).get("_pinned")  # as an attribute it takes ten times the time

    @property
    def narrowed(self) -> Self | None:
        """The options, if profiles or the session have changed them."""
        return self if self.pinned else None

    @property
    def profile_prompt(self) -> str:
        return pinned.prompt if (pinned := self.pinned) else ""

    @property
    def alone(self) -> RunOptions:
        """The options without the message and the files of a request: they are held as long as the run lasts."""
        if type(self) is RunOptions:
            return self
        names = self.model_fields_set & RunOptions.model_fields.keys()
        if not names and not self.pinned:
            return NO_OPTIONS
        options = RunOptions.model_construct(names, **{name: getattr(self, name) for name in names})
        options._pinned = self.pinned
        return options

    def with_pinned(self, values: Mapping[str, Any], pinned: Pinned) -> Self:
        """The options with these values, and with what the profiles of the run add."""
        options = self.model_copy(update=dict(values))
        options._pinned = pinned
        return options

    @property
    def override(self) -> Override | None:
        """The prompt that `system` asks for."""
        return self.system.override() if self.system else None

    @property
    def plans(self) -> bool:
        """Return whether only reading tools may run until a person has accepted a plan."""
        return self.mode == "plan"

    def policy(self) -> str:
        """JSON of the options, as a run's row keeps it."""
        names = self.model_fields_set & RunOptions.model_fields.keys()
        policy = self.model_dump_json(include=names, exclude_defaults=True) if names else "{}"
        if not self.pinned:
            return policy
        return json.dumps(json.loads(policy) | {PINNED: msgspec.to_builtins(self.pinned)})

    @classmethod
    def of_policy(cls, policy: str) -> RunOptions:
        """The options of an earlier run. Fields of `policy` that are no option are left out. Raises ValidationError."""
        kept = json.loads(policy)
        options = cls(**{name: value for name, value in kept.items() if name in cls.model_fields})
        options._pinned = pinned_in(kept)
        return options


NO_OPTIONS = RunOptions.model_construct()  # without a validator, which would be built at the start


def pinned_in(policy: Mapping[str, Any]) -> Pinned | None:
    """Return what the profiles of a run add to its options, from the policy of its row."""
    return msgspec.convert(policy[PINNED], Pinned) if PINNED in policy else None
