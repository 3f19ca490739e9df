"""Settings of the operator's control over calls: rules on their arguments. In the file only."""

from __future__ import annotations

from pydantic import BaseModel

from app.core.rules import OperatorRule
from app.core.settings_fields import setting

FILE_ONLY = frozenset({"hooks", "rules"})  # no flag and no variable, which others can see or set


class OperatorSettings(BaseModel, defer_build=True):
    """Rules of the operator."""

    rules: tuple[OperatorRule, ...] = setting(
        (),
        "rules that deny calls or ask before them, by their arguments; in the file only",
        'tables such as {tool = "bash", commands = ["git push"], action = "ask", reason = "It publishes"}, with paths, '
        "hosts, commands or name",
    )
