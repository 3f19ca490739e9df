"""Settings of runs: limits, context, checks of the result; and of what begins runs, and of profiles for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, field_validator

from app.core.clock import known_zone
from app.core.profile_spec import ProfileSpec, checked_profile_name
from app.core.settings_fields import number, path, seconds, setting, switch, whole


class RunSettings(BaseModel, defer_build=True):
    """Limits of a run, and its context."""

    max_rounds: int = whole(20, 1, 200, "rounds of model and tools in one run")
    max_calls: int = whole(200, 1, 100_000, "tool calls in one run")
    max_run_tokens: int = whole(0, 0, 10**12, "tokens in one run; 0 for no limit")
    run_time_limit_s: float = seconds(7200.0, "time limit of one run")
    window: int | None = whole(
        None, 512, 10**8, "context window in tokens (default: what the model's server reports, else 32768)"
    )
    tokenizer: Path | None = path(None, "tokenizer.json of the model, if its server does not count tokens")
    summarise_at: float = number(
        0.85, 0.2, 1, "share of the window from which the older half of the conversation is summarised; 1 for never"
    )
    summary_time_limit_s: float = seconds(30.0, "time limit of a summary")
    prompt_rules: bool = switch(
        True, "tell models with a window of 16384 tokens or more about safety, approvals, the sandbox and the channel"
    )
    result_characters: int = whole(8000, 500, 10**7, "longest tool result that the model receives, in characters")
    parallel_reads: bool = switch(True, "run the read-only calls of one reply concurrently")
    pty: Literal["auto", "on", "off"] = setting(
        "auto",
        "run `bash` and `python` in a pseudo-terminal, which a person can type into; `auto`: where the page or "
        "`dragoman chat` shows the run",
        "auto, on or off",
    )
    relay_repair: bool = switch(
        False, "in a relay, ask the model once more when a call does not fit the schema of the client's tool"
    )
    lane_disconnect: Literal["default", "cancel", "continue"] = setting(
        "default",
        "what becomes of a run whose client leaves, on the routes for clients of other APIs: `cancel` stops it after a "
        "second, `continue` lets it go on; `default`: `continue` for AG-UI and the AI SDK's UI stream, else `cancel`",
        "default, cancel or continue",
    )
    verify: bool = switch(
        False, "have the model check, after a run that changed something, that the request was fulfilled"
    )
    record: bool = switch(
        False, "record what runs are made of (the model's stream, requests, decisions), to replay them exactly"
    )
    documents: bool = switch(False, "also keep code blocks of more than 30 lines as documents beside the chat")
    checkpoints: bool = switch(True, "keep what runs change in the workspace, so that it can be looked at and undone")
    checkpoint_mb: int = whole(
        2048, 16, 10**6, "megabytes of the checkpoints of all runs, of which the oldest go first; half for a workspace"
    )
    checkpoint_file_mb: int = whole(16, 1, 1024, "megabytes from which on a file is left out of checkpoints")
    checkpoint_files: int = whole(50_000, 100, 10**7, "most files of a workspace that checkpoints are made of")
    checkpoint_time_limit_s: float = seconds(10.0, "time limit of one look at the workspace for a checkpoint")
    time_zone: str | None = setting(
        None,
        "time zone of the dates in prompts (default: this machine's)",
        "a name such as Europe/Berlin, of which this machine's time zone database (tzdata) knows",
    )

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, value: str | None) -> str | None:
        if value is not None and not known_zone(value):
            raise ValueError("is not a time zone that this machine knows")
        return value


class AutomationSettings(BaseModel, defer_build=True):
    """Runs that begin without a request."""

    max_schedules: int = whole(
        50, 0, 1000, "schedules of one principal, and as many triggers; 0 holds all of them and takes no new ones"
    )
    schedules_per_user: int = whole(20, 0, 1000, "schedules of one user; of admins `max_schedules` alone")
    schedules_per_guest: int = whole(3, 0, 1000, "schedules of one guest; with 0 guests have none")
    shortest_interval_s: int = whole(300, 60, 86_400, "seconds between two times of a schedule that is not an admin's")
    max_background_runs: int = whole(
        16, 1, 1_000_000, "active runs of one principal that schedules, triggers and ends of jobs have begun"
    )
    reminders: bool = switch(True, "offer `manage_schedules`, by which models set schedules of their own person")


class HelperSettings(BaseModel, defer_build=True):
    """Helpers and other sessions."""

    helpers: bool = switch(
        False, "offer `delegate`, which has a helper do a task, and `ask_model`, a question to a model"
    )
    max_helpers: int = whole(16, 1, 200, "helpers that one run may begin, those of its helpers included")
    helpers_parallel: int = whole(4, 1, 16, "helpers of one run that work at the same time")
    helper_depth: int = whole(1, 1, 2, "levels of helpers below a run; 2 lets helpers begin helpers")
    session_tools: bool = switch(
        False, "offer tools that list, read and write to the other sessions of the same principal"
    )


class ProfileSettings(BaseModel, defer_build=True):
    """Profiles."""

    profiles: Mapping[Annotated[str, AfterValidator(checked_profile_name)], ProfileSpec] = setting(
        {},
        "profiles by name: options of runs that only narrow rights",
        'tables by names such as {prompt = "Answer in French.", tools = ["read_*"], max_rounds = 5}, with the keys in '
        "docs/profiles.md",
    )
