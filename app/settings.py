"""Every setting, and where its value comes from: flag > `DRAGOMAN_*` > `dragoman.toml` > default.

The file is read by tomllib and the values are checked by pydantic: pydantic-settings would add 90 ms to every start
and knows neither the origin of a value nor the nearest known name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from app.settings_sources import Given, SettingsError, home_of, in_environment, in_file, in_flags

LOG_LEVELS = Literal["critical", "error", "warning", "info", "debug", "trace"]
BUILT_IN_MODELS = ("embedded:", "scripted:")  # model URLs without a host: what app.providers carries itself
DAY_S = 86_400


def _setting(default: Any, help_text: str, allowed: str, **limits: Any) -> Any:
    """A field that can say what it is for and what it allows, in `--help` and in errors."""
    return Field(default, description=help_text, json_schema_extra={"allowed": allowed}, **limits)


def _whole(default: int | None, low: int, high: int, help_text: str) -> Any:
    return _setting(default, help_text, f"a whole number from {low} to {high}", ge=low, le=high)


def _seconds(default: float, help_text: str) -> Any:
    return _setting(default, help_text, f"seconds, from 1 to {DAY_S}", ge=1, le=DAY_S, allow_inf_nan=False)


def _path(default: Any, help_text: str) -> Any:
    return _setting(default, help_text, "a path")


class Settings(BaseModel):
    """What dragoman runs with. Times in seconds, sizes in bytes, paths absolute when they come from `load_settings`."""

    # Secrets and unread values must not leak into the text of a ValidationError.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, protected_namespaces=())

    model_url: str | None = _setting(
        None,
        "base URL of an OpenAI-compatible model server, usually ending in /v1 (default: a local one, else embedded:)",
        "an http or https URL without a password in it, such as http://127.0.0.1:8080/v1, or embedded: or scripted:",
    )
    model: str | None = _setting(None, "the model to ask for (default: the server's first)", "a name")
    model_key: SecretStr | None = _setting(
        None,
        "API key of the model server; better in the environment, others on the machine can see flags",
        "printable ASCII without spaces",
    )
    model_temperature: float | None = _setting(
        None, "sampling temperature (default: the server's)", "a number from 0 to 2", ge=0, le=2, allow_inf_nan=False
    )
    model_inactivity_s: float = _seconds(300.0, "how long a model may stay silent before its request is given up")
    tool_calls: Literal["auto", "fenced"] = _setting(
        "auto", "auto: native calls where the model's server takes them; fenced: taught in the prompt", "auto or fenced"
    )
    data_dir: Path = _path(..., "folder of the database (default: $XDG_DATA_HOME/dragoman, ~/.local/share/dragoman)")
    workspace: Path = _path(Path("workspace"), "folder that the tools work in")
    host: str = _setting("127.0.0.1", "address to listen on; others than loopback need a token", "a host")
    port: int = _whole(8724, 0, 65_535, "port to listen on; 0 takes a free one")
    max_rounds: int = _whole(20, 1, 200, "rounds of model and tools that one run may take")
    max_message_bytes: int = _whole(1 << 20, 1024, 1 << 28, "longest request body, in bytes")
    tool_time_limit_s: float = _seconds(3600.0, "how long one tool call may take")
    run_time_limit_s: float = _seconds(7200.0, "how long one run may take")
    shutdown_grace_s: float = _setting(
        5.0, "how long runs may go on when the server is told to stop", "seconds, from 0 to 3600", ge=0, le=3600
    )
    log_join_after_s: float = _setting(
        600.0,
        "a run's log is stored in fewer rows that long after its end",
        f"seconds, from 0 to {DAY_S}",
        ge=0,
        le=DAY_S,
    )
    keep_days: int = _whole(0, 0, 36_500, "days without activity after which a session is deleted; 0 keeps all")
    job_time_limit_s: float = _seconds(3600.0, "how long a background job may take")
    job_limit: int = _whole(8, 0, 1000, "background jobs that one user may have running; 0 for none")
    job_follow_up: bool = _setting(True, "whether a background job that has ended begins a turn", "true or false")
    unsafe_no_sandbox: bool = _setting(
        False, "run commands without the sandbox: they can then do all you can", "true or false"
    )
    log_level: LOG_LEVELS = _setting("warning", "how much to log", "critical, error, warning, info, debug or trace")

    @field_validator("*", mode="before")
    @classmethod
    def _printable(cls, value: Any) -> Any:
        # Control characters and broken UTF-8 would surface much later, in a path, a header or a terminal.
        if isinstance(value, str) and (not value.strip() or not value.isprintable()):
            raise ValueError("is empty or holds characters that cannot be printed")
        return value

    @field_validator("port", "max_rounds", "max_message_bytes", "job_limit", mode="before")
    @classmethod
    def _not_a_truth(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("is true or false")
        return value

    @field_validator("log_level", "tool_calls", mode="before")
    @classmethod
    def _any_case(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @field_validator("model_url")
    @classmethod
    def _web_address(cls, value: str | None) -> str | None:
        if value is None or value in BUILT_IN_MODELS:
            return value
        parts = urlsplit(value)  # raises ValueError on a broken IPv6 host
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError("is not a plain http(s) URL")
        _ = parts.port  # raises ValueError when it is not one
        return value.rstrip("/")

    @field_validator("model_key")
    @classmethod
    def _header_safe(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        key = value.get_secret_value().strip()
        if not key or not key.isascii() or " " in key:
            raise ValueError("does not fit into a header")
        return SecretStr(key)


# What an error may not repeat: a key, and a URL that may carry a password.
SECRET = frozenset({"model_key"})
NAMES = tuple(Settings.model_fields)
PATHS = frozenset({"data_dir", "workspace"})


@dataclass(frozen=True, slots=True)
class Loaded:
    """Checked settings; `origins` says for each name where its value comes from (`flag --port`, `default`, ...)."""

    settings: Settings
    origins: Mapping[str, str]
    config_file: Path | None = None


def load_settings(flags: Mapping[str, object], environ: Mapping[str, str], *, folder: Path | None = None) -> Loaded:
    """The settings in force. `flags` holds None for what was not given; `config` among them names the TOML file.

    Relative paths count from `folder` (default: the current one), those in the file from the file's folder.
    Raises SettingsError with every problem found, not only the first.
    """
    folder = folder or _here()
    problems: list[str] = []
    file, from_file = in_file(flags.get("config"), environ, NAMES, folder, problems)
    given = from_file | in_environment(environ, NAMES, folder, problems) | in_flags(flags, NAMES, folder)
    home = home_of(environ)
    values: dict[str, object] = {"data_dir": _default_data_dir(environ, home), "workspace": folder / "workspace"}
    values |= {name: _absolute(one, home) if name in PATHS else one.value for name, one in given.items()}
    try:
        settings = Settings.model_validate(values)
    except ValidationError as wrong:
        raise SettingsError([*problems, *_told(wrong, given)]) from None
    if (data := settings.data_dir.resolve()).is_relative_to(settings.workspace.resolve()):
        problems.append(f"data_dir ({data}) is inside the workspace, where tools could read it. Move one of them.")
    if file and "model_key" in from_file and file.resolve().is_relative_to(settings.workspace.resolve()):
        problems.append(
            f"model_key stands in {file}, inside the workspace, where tools could read it. Move one of them."
        )
    if problems:
        raise SettingsError(problems)
    origins = {name: given[name].origin if name in given else "default" for name in NAMES}
    return Loaded(settings, MappingProxyType(origins), file)


def _here() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise SettingsError(["The current folder is gone. Change to one that exists."]) from None


def _told(wrong: ValidationError, given: Mapping[str, Given]) -> list[str]:
    """One sentence per wrong value: its name, origin and value, and what is allowed instead."""
    told = []
    for name in dict.fromkeys(str(error["loc"][0]) for error in wrong.errors()):
        extra = Settings.model_fields[name].json_schema_extra
        allowed = extra["allowed"] if isinstance(extra, dict) else "another value"
        found = given.get(name)
        said = f"({found.origin}) is {_shown(name, found.value)}" if found else "has no default on this machine"
        told.append(f"{name} {said}. Allowed: {allowed}.")
    return told


def _shown(name: str, value: object) -> str:
    if name in SECRET or "@" in str(value):
        return "a value that is not shown here"
    written = ascii(value)
    return written if len(written) <= 80 else written[:77] + "..."


def _default_data_dir(environ: Mapping[str, str], home: Path | None) -> Path | None:
    base = environ.get("XDG_DATA_HOME", "")
    if base.startswith("/"):  # the XDG specification says to ignore relative ones
        return Path(base, "dragoman")
    return home / ".local" / "share" / "dragoman" if home else None


def _absolute(given: Given, home: Path | None) -> object:
    if not isinstance(given.value, str | Path) or not str(given.value):
        return given.value
    written = str(given.value)
    if home and (written == "~" or written.startswith("~/")):
        return str(home / written[2:])
    return str(given.folder / written)
