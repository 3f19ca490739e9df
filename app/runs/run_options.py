"""Options of a request for its run's agent, stored with the run so that the same agent can be built again."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Strict

from app.context.prompt import Override
from app.context.system_text import SystemText, as_fields
from app.core.rules import ApprovalMode, WhenAbsent
from app.core.settings_fields import DAY_S
from app.core.strict_model import StrictModel
from app.runs.discipline.run_terminals import TerminalSize
from app.runs.sampling import Sampling

LONGEST_MODEL = 256
LONGEST_NAME = 128  # characters of a client's tool, namespace included
MOST_CLIENT_TOOLS = 512


class ClientTool(StrictModel):
    """A tool that the client runs itself. `parameters` is a JSON Schema of type object."""

    name: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})


class RunOptions(Sampling):
    """All are optional; the settings hold where one is left out. A new option of a run is one field here."""

    model: str | None = Field(default=None, max_length=LONGEST_MODEL)
    tools: list[str] | None = Field(default=None, max_length=1024)
    max_rounds: int | None = Field(default=None, ge=1, le=200)
    max_calls: int | None = Field(default=None, ge=1, le=100_000)
    max_tokens: int | None = Field(default=None, ge=1, le=10**12)
    time_limit_s: float | None = Field(default=None, gt=0, le=DAY_S)
    inactivity_s: float | None = Field(default=None, gt=0, le=DAY_S)
    approval: Annotated[ApprovalMode, Strict(strict=False)] | None = None
    when_absent: Annotated[WhenAbsent, Strict(strict=False)] = WhenAbsent.WAIT
    mode: Literal["act", "plan"] = "act"
    without_vision: Literal["refuse", "describe"] = "refuse"
    terminal: TerminalSize | None = None
    client_tools: list[ClientTool] | None = Field(default=None, max_length=MOST_CLIENT_TOOLS)
    system: Annotated[SystemText | None, BeforeValidator(as_fields)] = None

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
        return self.model_dump_json(include=set(RunOptions.model_fields), exclude_defaults=True)

    @classmethod
    def of_policy(cls, policy: str) -> RunOptions:
        """The options of an earlier run. Fields of `policy` that are no option are left out. Raises ValidationError."""
        return cls(**{name: value for name, value in json.loads(policy).items() if name in cls.model_fields})
