"""All settings, and their sources: flag > `DRAGOMAN_*` > `dragoman.toml` > default.

tomllib reads the file and pydantic checks the values: pydantic-settings would add 90 ms to every start and knows
neither the origin of a value nor the most similar known name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct
from pydantic import ConfigDict, PrivateAttr, SecretStr, ValidationError, ValidationInfo, field_validator

from app.config.connection_settings import ConnectionSettings, apps_origin_problems
from app.config.display import wrong_values
from app.config.label_settings import LabelSettings, label_problems
from app.config.memory_settings import KnowledgeSettings, MemorySettings, knowledge_problems, memory_problems
from app.config.model_settings import ModelSettings, key_files, model_problems, rooted
from app.config.monitoring_settings import MonitoringSettings, TelemetrySettings, monitoring_problems
from app.config.notification_settings import NotificationSettings
from app.config.operator_settings import FILE_ONLY, HookSettings, OperatorSettings, hook_problems
from app.config.protected_files import in_workspace, own_files
from app.config.replica_settings import ReplicaSettings, worker_problems
from app.config.run_settings import AutomationSettings, HelperSettings, ProfileSettings, RunSettings
from app.config.search_settings import SearchSettings, search_problems
from app.config.serving_settings import ServingSettings
from app.config.sign_in_settings import SignInSettings, sign_in_problems
from app.config.sources import (
    SettingsError,
    absolute,
    current_folder,
    default_data_dir,
    home_of,
    in_environment,
    in_file,
    in_flags,
)
from app.core.endpoint_spec import ToolCalls, ToolGrammar
from app.core.rules import ApprovalMode, ToolRule
from app.core.settings_fields import (
    BUILT_IN_MODELS,
    WORDS,
    mode,
    number,
    path,
    read_value,
    seconds,
    setting,
    switch,
    types_in,
    web_address,
    whole,
    words,
)
from tools.base.rights import Role
from tools.shell_policy.plain_commands import DEFAULT_COMMANDS, refusal
from tools.web.addresses import is_valid_private_host

LOG_LEVELS = Literal["critical", "error", "warning", "info", "debug", "trace"]
SUPERVISED = tuple(
    mode for mode in ApprovalMode if mode is not ApprovalMode.AUTO
)  # the modes of principals other than admins


class Settings(
    RunSettings,
    ModelSettings,
    SearchSettings,
    AutomationSettings,
    NotificationSettings,
    MemorySettings,
    KnowledgeSettings,
    LabelSettings,
    HookSettings,
    ProfileSettings,
    ServingSettings,
    HelperSettings,
    OperatorSettings,
    ReplicaSettings,
    ConnectionSettings,
    SignInSettings,
    MonitoringSettings,
    TelemetrySettings,
):
    """The settings of a server. Times in seconds, sizes in bytes; `load_settings` makes paths absolute."""

    # Secrets and unread values must not leak into the text of a ValidationError.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, protected_namespaces=())

    model_url: str | None = setting(
        None,
        "base URL of an OpenAI-compatible model server, usually ending in /v1 (default: a local one, else embedded:)",
        "an http or https URL without a password in it, such as http://127.0.0.1:8080/v1, or embedded: or scripted:",
    )
    model: str | None = setting(
        None, "default model: its name, endpoint/model or an alias (default: the first)", "a name"
    )
    model_key: SecretStr | None = setting(
        None,
        "API key of the model server; prefer the environment, because other users of the machine can see flags",
        "printable ASCII without spaces",
    )
    model_temperature: float | None = number(None, 0, 2, "sampling temperature (default: the server's)")
    model_inactivity_s: float = seconds(300.0, "longest silence of a model before its request fails with model_silent")
    tool_calls: ToolCalls = setting(
        "auto",
        "native: offered to the model's server; tagged, fenced: taught in the prompt; auto: what the model needs",
        "auto, native, tagged or fenced",
    )
    tool_grammar: ToolGrammar = setting(
        "auto",
        "the server enforces the form of calls; auto: of taught ones, on: of native ones, too; off: none",
        "auto, on or off",
    )
    data_dir: Path = path(
        ...,
        "folder of database, keys and personas, mode 0700 (default: $XDG_DATA_HOME/dragoman, ~/.local/share/dragoman)",
    )
    workspace: Path = path(Path("workspace"), "folder that the tools work in")
    host: str = setting("127.0.0.1", "address to listen on; any other than loopback needs a token", "a host")
    port: int = whole(8724, 0, 65_535, "port to listen on; 0 chooses a free one")
    max_message_bytes: int = whole(1 << 20, 1024, 1 << 28, "longest request body without files, in bytes")
    max_upload_bytes: int = whole(1 << 28, 1024, 1 << 40, "bytes of one file that a person puts into the workspace")
    tool_time_limit_s: float = seconds(3600.0, "time limit of one tool call")
    shutdown_grace_s: float = seconds(5.0, "time that runs get to finish when the server is stopped", low=0, high=3600)
    log_join_after_s: float = seconds(
        600.0, "time after its end at which a run's log is compacted into fewer rows", low=0
    )
    keep_days: int = whole(0, 0, 36_500, "days without activity after which a session is deleted; 0 keeps all")
    temporary_idle_s: float = seconds(
        3600.0, "time after its last run at which a temporary conversation that no client follows is deleted", low=1
    )
    max_streams: int = whole(1024, 1, 1_000_000, "event streams that one principal may have open at a time")
    max_runs: int = whole(1024, 1, 1_000_000, "active runs of one principal; 16 more may be queued")
    sign_in_days: int = whole(30, 0, 365, "days that a browser stays signed in, if its user wants that; 0: never")
    requests_per_minute: int = whole(0, 0, 10**9, "requests of one principal in a minute; 0 for no limit")
    tokens_per_month: int = whole(0, 0, 10**12, "model tokens of one principal in a month (UTC); 0 for no limit")
    tool_seconds_per_day: int = whole(0, 0, 10**9, "tool seconds of one principal in a day (UTC); 0 for no limit")
    job_time_limit_s: float = seconds(3600.0, "time limit of a background job")
    job_limit: int = whole(8, 0, 1000, "background jobs that one principal may have running; 0 turns them off")
    job_follow_up: bool = switch(True, "start a turn of the conversation when a background job ends")
    max_follow_ups: int = whole(8, 0, 1000, "turns that ended jobs may start until a person writes again")
    approval_guest: ApprovalMode = mode("guests", *SUPERVISED)
    approval_user: ApprovalMode = mode("users", *SUPERVISED)
    approval_admin: ApprovalMode = mode("admins", *ApprovalMode)
    approval_time_limit_s: float | None = seconds(
        None, "how long a call waits for approval (default: until it is decided)"
    )
    grant_time_limit_s: int = whole(
        28_800, 0, 31_536_000, "seconds for which a grant for a session is valid; 0 for as long as the session"
    )
    allowed_commands: tuple[str, ...] = words(
        DEFAULT_COMMANDS,
        "shell commands that never need approval; a final * stands for any further words of a program that only reads",
        "literal words, such as git status *",
    )
    tools: tuple[ToolRule, ...] = setting(
        (),
        "rules that classify tools; tools that no rule matches are for admins and need approval",
        'tables such as {match = "mcp__files__read*", role = "user", risk = "read"}, with role (guest, user, admin), '
        "risk (read, write, execute, network, admin), approval (mode, never, always), untrusted (true, false) or "
        'arguments (what each is for: {to = "recipient", note = "content"})',
    )
    taint: bool = switch(
        True, "calls that leave the sandbox need approval again once a conversation contains untrusted text"
    )
    canary: bool = switch(False, "put a random code into each run's prompt; reject calls and block text that reveal it")
    judge_output: bool = switch(False, "have the model judge whether changing calls, and answers, serve the request")
    screen_results: bool = switch(False, "have the model screen untrusted results before a run reads them")
    judge_time_limit_s: float = seconds(20.0, "time limit of each judgement and each screening")
    private_hosts: tuple[str, ...] = words(
        (),
        "private hosts that web_fetch, boxed commands and MCP servers added over HTTP may reach",
        "names and addresses, with or without a port, and networks, such as wiki.local:8080 or 10.0.0.0/8",
    )
    mcp_config: Path = path(Path("mcp.json"), "file with the list of MCP servers, in the format of other programs")
    mcp_commands_from_api: bool = switch(False, "let admins add MCP servers that are commands over HTTP")
    management_tools: bool = switch(
        False, "offer admins tools that manage this server: sessions, jobs, endpoints, tokens ...; each call asks"
    )
    mcp_wait_s: float = number(5.0, 0, 60, "seconds that turns wait for an MCP server whose tools were never listed")
    mcp_tools_share: float = number(
        0.05, 0, 1, "share of the window for MCP tool definitions; above it tools are searched"
    )
    audit_days: int = whole(365, 0, 36_500, "days after which a decision is deleted from the audit log; 0 keeps all")
    git_author_name: str = setting("dragoman (agent)", "name of the author of git commits made in commands", "a name")
    git_author_email: str = setting("agent@dragoman.invalid", "e-mail address of that author", "an e-mail address")
    sandbox_network: bool = switch(
        False, "let every command reach public hosts through the proxy (needs bubblewrap); asks after untrusted text"
    )
    unsafe_no_sandbox: bool = switch(False, "run commands without the sandbox, with all rights of this account")
    log_level: LOG_LEVELS = setting("warning", "how much to log", "critical, error, warning, info, debug or trace")

    @field_validator("*", mode="before")
    @classmethod
    def _read(cls, value: Any, info: ValidationInfo) -> Any:
        value = read_value(value, cls.model_fields[info.field_name or ""].annotation)
        # Control characters and broken UTF-8 would surface much later, in a path, a header or a terminal.
        if isinstance(value, str) and (not value.strip() or not value.isprintable()):
            raise ValueError("is empty or holds characters that cannot be printed")
        return value

    @field_validator("approval_guest", "approval_user")
    @classmethod
    def _supervised(cls, value: ApprovalMode) -> ApprovalMode:
        if value in SUPERVISED:
            return value
        raise ValueError("is for admins")

    @field_validator("private_hosts")
    @classmethod
    def _hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if all(map(is_valid_private_host, value)):
            return value
        raise ValueError("has an entry that is none of these")

    _worker = PrivateAttr(1)  # its number among those of this machine

    @property
    def worker(self) -> int:
        return self._worker

    def as_worker(self, number: int, port: int) -> Settings:
        """Return the settings of one worker, behind the port that all of them have."""
        own = self.model_copy(update={"port": port})
        own._worker = number
        return own

    @property
    def own_dir(self) -> Path:
        """The folder of what only this worker may use: the data directory itself for the first, or only, one."""
        return self.data_dir if self._worker == 1 else self.data_dir / "workers" / str(self._worker)

    def mode_of(self, role: Role) -> ApprovalMode:
        """The approval mode of runs whose request names none."""
        modes = {Role.GUEST: self.approval_guest, Role.USER: self.approval_user, Role.ADMIN: self.approval_admin}
        return modes[role]

    @field_validator("model_url", "search_url", "memory_embeddings_url", "public_url", "apps_origin")
    @classmethod
    def _web_address(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value in BUILT_IN_MODELS and info.field_name != "model_url":
            raise ValueError("is a model")
        return None if value is None else web_address(value)

    @field_validator("model_key", "search_key", "memory_embeddings_key", "metrics_token", "model_hub_token")
    @classmethod
    def _header_safe(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        key = value.get_secret_value().strip()
        if not key or not key.isascii() or " " in key:
            raise ValueError("does not fit into a header")
        return SecretStr(key)


NAMES = tuple(Settings.model_fields)
OUTSIDE = tuple(name for name in NAMES if name not in FILE_ONLY)  # as flags and variables, too
PATHS = frozenset(name for name, field in Settings.model_fields.items() if Path in types_in(field.annotation))
WORD_LISTS = tuple(name for name, field in Settings.model_fields.items() if field.annotation == WORDS)


class Loaded(Struct, frozen=True):
    """Checked settings; `origins` has the source of each value by name (`flag --port`, `default`, ...)."""

    settings: Settings
    origins: Mapping[str, str]
    config_file: Path | None = None


def load_settings(flags: Mapping[str, object], environ: Mapping[str, str], *, folder: Path | None = None) -> Loaded:
    """Read and check all settings. `flags` holds None for flags that were not given; its `config` is the TOML file.

    Relative paths are relative to `folder` (default: the current one), those in the file to the file's folder.
    Raises SettingsError with all problems, not only the first.
    """
    folder = folder or current_folder()
    problems: list[str] = []
    file, from_file = in_file(flags.get("config"), environ, NAMES, folder, problems)
    given = (
        from_file | in_environment(environ, OUTSIDE, WORD_LISTS, folder, problems) | in_flags(flags, OUTSIDE, folder)
    )
    home = home_of(environ)
    values: dict[str, object] = {"data_dir": default_data_dir(environ, home), "workspace": folder / "workspace"}
    values["mcp_config"] = (file.parent if file else folder) / "mcp.json"
    values |= {name: absolute(one, home) if name in PATHS else one.value for name, one in given.items()}
    try:
        settings = Settings.model_validate(values)
    except ValidationError as wrong:
        raise SettingsError([*problems, *wrong_values(wrong, given, Settings.model_fields)]) from None
    settings = settings.model_copy(update={"endpoints": rooted(settings.endpoints, given.get("endpoints"), home)})
    problems += model_problems(settings, settings.model_url)
    problems += search_problems(settings)
    problems += memory_problems(settings)
    problems += knowledge_problems(settings)
    problems += hook_problems(settings, environ)
    problems += monitoring_problems(settings)
    problems += sign_in_problems(settings, settings.public_url, settings.sign_in_days)
    problems += apps_origin_problems(settings.apps_origin, settings.public_url)
    problems += label_problems(settings, settings.endpoints)
    problems += worker_problems(settings)
    named = {"mcp_config": settings.mcp_config, **key_files(settings.endpoints)}
    named |= {"tokenizer": settings.tokenizer} if settings.tokenizer else {}
    named |= {"secrets_key_file": settings.secrets_key_file} if settings.secrets_key_file else {}
    problems += in_workspace(own_files(settings.data_dir, named, environ, file, folder), settings.workspace)
    if "allowed_commands" in given:
        origin = given["allowed_commands"].origin
        problems += [
            f"allowed_commands ({origin}): {why} Allowed: literal words, with a last * for any further ones."
            for why in map(refusal, settings.allowed_commands)
            if why
        ]
    if problems:
        raise SettingsError(problems)
    origins = {name: given[name].origin if name in given else "default" for name in NAMES}
    return Loaded(settings, MappingProxyType(origins), file)
