"""Settings of the operator's control over calls: hooks, and rules on their arguments. In the file only."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel

from app.config.sign_in_settings import SIGN_IN_SETTINGS
from app.core.hook_rows import MOST_HOOKS, HookRow
from app.core.rules import OperatorRule
from app.core.settings_fields import setting

FILE_ONLY = frozenset({"hooks", "rules"}) | SIGN_IN_SETTINGS  # no flag and no variable, which others can see or set


class HookSettings(BaseModel, defer_build=True):
    """Hooks."""

    hooks: tuple[HookRow, ...] = setting(
        (),
        "commands and URLs that guard or observe model requests, calls and answers",
        'tables such as {name = "audit", on = "before_tool", kind = "guard", command = ["/opt/check"]}, with url '
        "instead of command, and tools, time_limit_s, env or key_env",
    )


class OperatorSettings(BaseModel, defer_build=True):
    """Rules of the operator."""

    rules: tuple[OperatorRule, ...] = setting(
        (),
        "rules that deny calls, ask before them or allow them, by their arguments; in the file only",
        'tables such as {tool = "bash", commands = ["git push"], action = "ask", reason = "It publishes"}, with paths, '
        "hosts, commands or name",
    )


def hook_problems(settings: HookSettings, environ: Mapping[str, str]) -> Iterator[str]:
    """Contradictions between the rows and this machine, a sentence each."""
    rows = settings.hooks
    if len(rows) > MOST_HOOKS:
        yield f"hooks has {len(rows)} rows; there may be {MOST_HOOKS}."
    for name, count in Counter(row.name for row in rows).items():
        if count > 1:
            yield f"hooks has {count} rows that are named {name}: give each its own name."
    for row in rows:
        for variable in filter(None, (*row.env, row.key_env)):
            if variable not in environ:
                yield f"hooks: {row.name} needs the environment variable {variable}, which is not set."
        if row.command and not is_program(row.command[0]):
            yield f"hooks: {row.name} runs {row.command[0]!r}, which is no program here. Write its absolute path."


def is_program(word: str) -> bool:
    path = shutil.which(word)
    return path is not None and (os.sep not in word or Path(word).is_absolute())
