"""Settings of sensitivity labels: their sources, and the rules that say where labelled data may go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import regex
from pydantic import BaseModel

from app.core.endpoint_spec import EndpointSpec
from app.core.labels import MOST_LABELS, LabelPolicy, LabelRule, LabelSource, policy_of
from app.core.settings_fields import setting


class LabelSettings(BaseModel, defer_build=True):
    """Sensitivity labels."""

    labels: tuple[LabelSource, ...] = setting(
        (),
        "sensitivity labels and the data that has them: files of the workspace by path, results of MCP servers, "
        "texts by their content",
        'tables such as {label = "customer", paths = ["customers/**"], servers = ["crm"], contains = ["iban"]}; a '
        "label has lower-case letters, digits, . _ -, and without sources it is for marks alone",
    )
    label_rules: tuple[LabelRule, ...] = setting(
        (),
        "where data with a label may go; one rule for each label",
        'tables such as {label = "customer", endpoints = ["local"], otherwise = "ask"}, with endpoints (patterns of '
        "names), otherwise (refuse, ask), outward (ask, refuse, allow: calls with effects outside of the workspace), "
        "refuse_tools (patterns of tools)",
    )

    @property
    def label_policy(self) -> LabelPolicy:
        """The sources and rules in force."""
        return policy_of(self.labels, self.label_rules)


def label_problems(settings: LabelSettings, endpoints: Mapping[str, EndpointSpec]) -> Iterator[str]:
    """Contradictions between these settings, a sentence each."""
    names = {source.label for source in settings.labels}
    if len(names) > MOST_LABELS:
        yield f"labels defines {len(names)} labels; there may be {MOST_LABELS}. Join some of them."
    for label, count in Counter(rule.label for rule in settings.label_rules).items():
        if label not in names:
            yield f"label_rules names the label {label}, which labels does not define. {_defined(names)}"
        if count > 1:
            yield f"label_rules has {count} rules for the label {label}: join them into one."
    for name, spec in endpoints.items():
        for label in spec.labels or ():
            if label not in names:
                yield f"endpoints.{name}.labels names {label}, which labels does not define. {_defined(names)}"
    for source in settings.labels:
        for path in source.paths:
            if reason := path_problem(path):
                yield f"labels: the path {path!r} of {source.label} {reason}"
        for pattern in source.patterns:
            if reason := pattern_problem(pattern):
                yield f"labels: the pattern {pattern!r} of {source.label} {reason}"


def path_problem(path: str) -> str:
    """Return why a pattern of paths matches nothing, as the end of a sentence; empty if it can match."""
    if path.startswith(("/", "~")):
        return "is absolute. Write it relative to the workspace, such as customers/**."
    if any(part in ("", ".", "..") for part in path.rstrip("/").split("/")):
        return "has an empty part, . or ..: write it without, such as customers/**."
    if "**" in (without := path.replace("**/", "").removesuffix("/**").removesuffix("**")) and without:
        return "has ** inside of a name. Let ** stand between slashes, such as customers/**."
    return ""


def pattern_problem(pattern: str) -> str:
    """Return why a regular expression cannot be used, as the end of a sentence; empty if it can."""
    try:
        matches_nothing = regex.compile(pattern).search("", timeout=1)
    except regex.error as error:
        return f"is no regular expression: {error}."
    return "matches the empty text, and so every message." if matches_nothing else ""


def _defined(names: set[str]) -> str:
    there = f"It defines {', '.join(sorted(names))}." if names else "It defines none."
    return f'{there} Add [[labels]] label = "...", or correct the name.'
