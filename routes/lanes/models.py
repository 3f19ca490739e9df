"""The model that a client names, and the agent or the relay that it gets for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from pydantic import ValidationError

from app.context.prompt import MOST_OVERRIDE
from app.context.system_text import SystemText
from app.core.messages import Message
from app.core.profile_spec import LONGEST_MODEL, LONGEST_PROFILE, MODE_NAMES, SessionModes
from app.core.rules import WhenAbsent
from app.core.sampling import IN_CHAT_COMPLETIONS, Sampling
from app.models.endpoints.model_registry import UnknownModel
from app.profiles.library import UnknownProfile
from app.runs.run_options import RunOptions
from routes.lanes.lane import LaneRequest
from routes.protocol.errors import Refused

AGENTS = "dragoman/"
DEFAULT = "agent"
# Of a client's parameters those that the agent takes, as options of a run.
FOR_AGENT = {word: name for name, word in IN_CHAT_COMPLETIONS.items()} | {"max_completion_tokens": "max_output_tokens"}
AGENT = f"{AGENTS}{DEFAULT}"
FLAGS = {"true": True, "false": False}
PROFILE = "x-dragoman-profile"  # no format has a field for it


class ModelChoice(Struct, frozen=True):
    """`agent`: dragoman's loop; else one round of the model. `model` is None for the default."""

    agent: bool
    model: str | None


def model_choice(name: str | None) -> ModelChoice:
    """Without a name it is the agent with the default model. Raises UnknownModel."""
    if name and len(name) > LONGEST_MODEL:
        raise UnknownModel(f"{name[:40]!a}... has {len(name):,} characters, and no model has such a name.")
    if name is None or name == AGENT:
        return ModelChoice(agent=True, model=None)
    if name.startswith(AGENTS):
        return ModelChoice(agent=True, model=name.removeprefix(AGENTS))
    return ModelChoice(agent=False, model=name)


def options_of_headers(headers: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the profile and the modes that headers such as `X-Dragoman-Temporary: true` name.

    Raises UnknownProfile, Refused.
    """
    profile = headers.get(PROFILE) or None
    if profile and len(profile) > LONGEST_PROFILE:
        raise UnknownProfile(
            f"There is no profile {profile[:40]!a}...: names have at most {LONGEST_PROFILE} characters."
        )
    given = {name: headers.get(f"x-dragoman-{name.replace('_', '-')}") for name in MODE_NAMES}
    values = {name: FLAGS.get(text, text) for name, text in given.items() if text is not None}
    try:
        return {"profile": profile} | SessionModes.model_validate(values).model_dump(exclude_none=True)
    except ValidationError as invalid:
        error = invalid.errors(include_url=False)[0]
        name = str(error["loc"][0]).replace("_", "-")
        raise Refused(400, "invalid_request", f"X-Dragoman-{name.title()}: {error['msg']}") from None


def agent_options(request: LaneRequest, absent: WhenAbsent, given: Mapping[str, Any]) -> RunOptions:
    """Return the options of the agent's run; `given` are those of the headers. Raises Refused."""
    instructions = "\n\n".join(message.text for message in _head(request.messages) if message.text.strip())
    if len(instructions) > MOST_OVERRIDE:
        problem = f"The system messages have {len(instructions):,} characters; send at most {MOST_OVERRIDE:,}."
        raise Refused(413, "too_long", problem)
    return RunOptions(
        model=model_choice(request.model).model,
        system=SystemText(text=instructions) if instructions else None,
        client_tools=request.tools or None,
        when_absent=absent,
        **_sampling(request.parameters).model_dump(exclude_none=True),
        **given,
    )


def relayed_parameters(options: RunOptions, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The client's parameters, and those of its profile that it leaves out."""
    profiles = options.parameters
    if "max_completion_tokens" in given:
        profiles.pop("max_tokens", None)
    return {**profiles, **given} if profiles else given


def _sampling(parameters: Mapping[str, Any]) -> Sampling:
    """The parameters that an agent takes. Raises Refused for a value that is no such parameter's."""
    given = {FOR_AGENT[word]: _whole(parameters[word]) for word in FOR_AGENT if word in parameters}
    try:
        return Sampling(**given)
    except ValidationError as invalid:
        error = invalid.errors(include_url=False)[0]
        word = next(word for word in reversed(FOR_AGENT) if FOR_AGENT[word] == error["loc"][0] and word in parameters)
        raise Refused(400, "invalid_request", f"{word}: {error['msg']}.", param=word) from None


def _whole(value: Any) -> Any:
    """JavaScript has one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


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
