"""Settings that an admin may change while the server runs. A change is stored, and holds over flags and files.

Only limits, habits and guards of runs are among them: how the server is reached, what it may touch and the rights to
decide stay with those who can start it. The next run reads a change; runs that are under way keep what they began with.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from app.config.display import wrong_values
from app.config.settings import Settings
from app.config.sources import Given
from app.replicas.peers import Alone, Peers
from app.storage.audit import AuditRow
from app.storage.changes import StoreFailed
from app.storage.state import StateRow, StateStore

CHANGEABLE = (
    *("max_rounds", "max_calls", "max_run_tokens", "run_time_limit_s", "tool_time_limit_s"),
    *("result_characters", "parallel_reads", "summarise_at", "summary_time_limit_s"),
    *("pty", "relay_repair", "verify", "mcp_wait_s", "mcp_tools_share", "max_follow_ups"),
    *("canary", "judge_output", "screen_results"),
)
STATE = "settings"  # name of the stored changes


class NotChangeable(Exception):
    """A change names a setting that holds until the server is restarted, or has a wrong value."""


class RuntimeSettings:
    """The settings in force: those that the server was started with, and the stored changes on top of them.

    `on_change` is called with the settings in force whenever these have changed.
    """

    def __init__(
        self,
        started: Settings,
        store: StateStore,
        on_change: Callable[[Settings], None] = lambda _: None,
        peers: Peers | None = None,
    ) -> None:
        self.started = started
        self.current = started
        self.changes: Mapping[str, Any] = {}
        self._store = store
        self._on_change = on_change
        self.changing = (peers or Alone()).changing(STATE, self.reload)

    async def load(self) -> Sequence[str]:
        """Take over the stored changes. Return a sentence for each that cannot be read or does not fit any more."""
        try:
            return await self.reload()
        except StoreFailed as failure:
            return [f"Changes of settings cannot be read, so the server goes by its flags and files: {failure}"]

    async def reload(self) -> Sequence[str]:
        """As `load`. Raises StoreFailed."""
        stored = json.loads(await self._store.state(STATE) or "{}")
        problems, fit = [], dict[str, Any]()
        for name, value in stored.items():
            try:
                changed(self.started, {name: value})
                fit[name] = value
            except NotChangeable as wrong:
                problems.append(f"The stored change of {name} is left out: {wrong}")
        if fit != self.changes:
            self._apply(fit)
        return problems

    async def change(self, values: Mapping[str, Any], by: str) -> None:
        """Store changes, where None withdraws one. All or none. Raises NotChangeable, StoreFailed."""
        async with self.changing:  # a change is made of the one before
            kept = {name: value for name, value in {**self.changes, **values}.items() if value is not None}
            changed(self.started, {**self.changes, **values})
            at = time.time()
            audit = [
                AuditRow(
                    at, by, f"setting {name}", "withdrawn" if value is None else "changed", why=json.dumps(value), by=by
                )
                for name, value in values.items()
            ]
            await self._store.write([StateRow(STATE, json.dumps(kept)), *audit])
            self._apply(kept)

    def _apply(self, changes: Mapping[str, Any]) -> None:
        self.changes, self.current = changes, changed(self.started, changes)
        self._on_change(self.current)


def changed(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Return the settings with these values; None leaves one as it is. Raises NotChangeable."""
    if unknown := [name for name in changes if name not in CHANGEABLE]:
        raise NotChangeable(
            f"{unknown[0][:80]!a} cannot be changed while the server runs. These can: {', '.join(CHANGEABLE)}."
        )
    values = {name: value for name, value in changes.items() if value is not None}
    if not values:
        return settings
    fixed = {name: getattr(settings, name) for name in (*CHANGEABLE, "data_dir", "workspace")}
    try:
        whole = Settings.model_validate(fixed | values)
    except ValidationError as wrong:
        given = {name: Given(value, "the change", settings.data_dir) for name, value in values.items()}
        raise NotChangeable(" ".join(wrong_values(wrong, given, Settings.model_fields))) from None
    return settings.model_copy(update={name: getattr(whole, name) for name in values})
