"""The model that a client names, and the agent or the relay that it gets for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from app.context.prompt import MOST_OVERRIDE
from app.context.system_text import SystemText
from app.core.messages import Message
from app.core.rules import WhenAbsent
from app.models.endpoints.model_registry import UnknownModel
from app.runs.run_options import LONGEST_MODEL, RunOptions
from routes.lanes.lane import LaneRequest
from routes.protocol.errors import Refused

AGENTS = "dragoman/"
DEFAULT = "agent"
# Of a client's parameters those that the agent passes on. The others are about one round, of which it makes several: a
# call that must be made would be made without an end.
FOR_AGENT = frozenset(
    {"max_tokens", "max_completion_tokens", "temperature", "top_p", "seed", "reasoning_effort"}
    | {"frequency_penalty", "presence_penalty"}
)
AGENT = f"{AGENTS}{DEFAULT}"


class Wanted(Struct, frozen=True):
    """`agent`: dragoman's loop; else one round of the model. `model` is None for the default."""

    agent: bool
    model: str | None


def wanted(name: str | None) -> Wanted:
    """Without a name it is the agent with the default model. Raises UnknownModel."""
    if name and len(name) > LONGEST_MODEL:
        raise UnknownModel(f"{name[:40]!a}... has {len(name):,} characters, and no model has such a name.")
    if name is None or name == AGENT:
        return Wanted(agent=True, model=None)
    if name.startswith(AGENTS):
        return Wanted(agent=True, model=name.removeprefix(AGENTS))
    return Wanted(agent=False, model=name)


def agent_options(request: LaneRequest, absent: WhenAbsent) -> RunOptions:
    """Raises Refused."""
    instructions = "\n\n".join(message.text for message in _head(request.messages) if message.text.strip())
    if len(instructions) > MOST_OVERRIDE:
        problem = f"The system messages have {len(instructions):,} characters; send at most {MOST_OVERRIDE:,}."
        raise Refused(413, "too_long", problem)
    return RunOptions(
        model=wanted(request.model).model,
        system=SystemText(text=instructions) if instructions else None,
        client_tools=request.tools or None,
        when_absent=absent,
    )


def agent_parameters(request: LaneRequest) -> dict[str, Any]:
    return {name: value for name, value in request.parameters.items() if name in FOR_AGENT}


def conversation_of(request: LaneRequest) -> list[Message]:
    """The messages behind the system messages at the head."""
    return request.messages[len(_head(request.messages)) :]


def continued(earlier: Sequence[Message], new: Sequence[Message]) -> list[Message]:
    """An earlier conversation and the messages that go on from it; its instructions are those of the new request."""
    head = _head(new)
    kept = earlier[len(_head(earlier)) :] if head else earlier
    return [*head, *kept, *new[len(head) :]]


def _head(messages: Sequence[Message]) -> Sequence[Message]:
    length = next((at for at, message in enumerate(messages) if message.role != "system"), len(messages))
    return messages[:length]
