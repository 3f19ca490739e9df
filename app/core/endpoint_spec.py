"""The specification of an endpoint: in the settings, on the command line, over HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from app.core.labels import MOST_LABELS, LabelName
from app.core.settings_fields import DAY_S, web_address
from tools.base.patterns import lazy_pattern

NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # without a slash: `endpoint/model` must be readable
NAME_RULE = "an endpoint's name has 1 to 64 letters, digits, . _ - and begins with a letter or digit"
SERVED = "served:"  # URLs of models whose files are served by this server
MOST_MODELS = 1000
MOST_KEYS = 64

WireFormat = Literal["auto", "openai", "anthropic"]
ToolCalls = Literal["auto", "native", "tagged", "fenced"]
ToolGrammar = Literal["auto", "on", "off"]


def checked_endpoint_name(name: str) -> str:
    """Return the name. Raises ValueError with the rule."""
    if not NAME.fullmatch(name):
        raise ValueError(NAME_RULE)
    return name


def _printable(text: str) -> str:
    if not text.isprintable() or not text.strip():
        raise ValueError("is empty or holds characters that cannot be printed")
    return text


def _address(url: str) -> str:
    """Check the URL of a model server, or the name of a served model."""
    name = url.removeprefix(SERVED)
    return url if name != url and NAME.fullmatch(name) else web_address(url)


def _listed(value: Any) -> Any:
    """A single value need not be a list."""
    return (value,) if isinstance(value, str) else value


Printable = Annotated[str, AfterValidator(_printable)]
ModelName = Annotated[Printable, Field(min_length=1, max_length=256)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,255}$")]
FilePath = Annotated[Printable, Field(min_length=1, max_length=4096)]


class EndpointSpec(BaseModel, defer_build=True):
    """One model server. Values that are None, empty or `auto` are detected.

    `models`, if there are any, are the only ones that can be requested. Keys are never part of it: `key_env` names
    variables of the environment, `key_file` files with one key each. `max_requests` are concurrent; 0 is no limit.
    `labels` are the only sensitivity labels that it may have; None for all that no rule keeps from it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, protected_namespaces=())

    url: Annotated[str, Field(min_length=1, max_length=2048), AfterValidator(_printable), AfterValidator(_address)]
    model: ModelName | None = None
    models: Annotated[tuple[ModelName, ...], BeforeValidator(_listed), Field(max_length=MOST_MODELS)] = ()
    key_env: Annotated[tuple[Variable, ...], BeforeValidator(_listed), Field(max_length=MOST_KEYS)] = ()
    key_file: Annotated[tuple[FilePath, ...], BeforeValidator(_listed), Field(max_length=MOST_KEYS)] = ()
    format: WireFormat = "auto"
    tool_calls: ToolCalls = "auto"
    tool_grammar: ToolGrammar = "auto"
    images: bool | None = None
    pdf: bool | None = None
    window: int | None = Field(default=None, ge=512, le=10**8)
    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False)
    max_requests: int | None = Field(default=None, ge=0, le=100_000)
    inactivity_s: float | None = Field(default=None, ge=1, le=DAY_S, allow_inf_nan=False)
    labels: Annotated[tuple[LabelName, ...], BeforeValidator(_listed), Field(max_length=MOST_LABELS)] | None = None

    @property
    def default_model(self) -> str | None:
        """The model of requests that name only the endpoint; None for the first one that the server lists."""
        return self.model or next(iter(self.models), None)

    @property
    def named(self) -> tuple[str, ...]:
        """The models that are named here, the default one first."""
        return tuple(dict.fromkeys(filter(None, (self.model, *self.models))))


class Price(BaseModel, defer_build=True):
    """Prices of a million tokens; those of `cached` and `cache_written` default to `input`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    input: float = Field(ge=0, le=10**6, allow_inf_nan=False)
    output: float = Field(ge=0, le=10**6, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, le=10**6, allow_inf_nan=False)
    cache_written: float | None = Field(default=None, ge=0, le=10**6, allow_inf_nan=False)
