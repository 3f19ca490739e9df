"""The sensitivity labels of sessions: shown, and added by a person's mark. None is ever taken away."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

from app.config.settings import Settings
from app.core.labels import joined
from app.labels.run_labels import MARK
from app.storage.audit import AuditRow
from app.storage.labels import SessionLabel
from app.storage.principals import Principal
from app.storage.sessions import SessionRow
from routes.protocol.errors import Refused
from routes.services import Services


def known_labels(settings: Settings, labels: Collection[str]) -> Sequence[str]:
    """Return the labels of a request, each once. Raises Refused for one that the settings do not define."""
    names = {source.label for source in settings.labels} if labels else set()
    if unknown := [label for label in labels if label not in names]:
        there = f"there are {', '.join(sorted(names))}" if names else "the settings define none (docs/labels.md)"
        raise Refused(422, "invalid_request", f"labels: there is no label {', '.join(unknown)}; {there}")
    return tuple(dict.fromkeys(labels))


async def label_fields(services: Services, sessions: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the field `labels` of each session; nothing where no label is configured. Raises StoreFailed."""
    if services.factory.labels is None:
        return {}
    found: dict[str, list[str]] = {session: [] for session in sessions}
    for row in await services.store.session_labels(sessions):
        found[row.session].append(row.label)
    return {session: {"labels": sorted(labels)} for session, labels in found.items()}


async def label_details(services: Services, session: str) -> dict[str, Any]:
    """Return the labels of a session, and where each of them came from. Raises StoreFailed."""
    if services.factory.labels is None:
        return {}
    rows = await services.store.session_labels([session])
    sources = [{name: getattr(row, name) for name in ("label", "source", "detail", "run", "at")} for row in rows]
    return {"labels": sorted(row.label for row in rows), "label_sources": sources}


async def mark_session(services: Services, principal: Principal, row: SessionRow, labels: Sequence[str]) -> None:
    """Add labels to a session and to the files of its messages. Raises StoreFailed."""
    there = joined(one.label for one in await services.store.session_labels([row.id]))
    new, now = [label for label in labels if label not in there], time.time()
    if not new or services.factory.labels is None:
        return
    audit = AuditRow(now, row.principal, f"labels of {row.id}", "added", why=", ".join(new), by=row.principal)
    rows = [SessionLabel(row.id, label, source=MARK, detail="", run="", at=now) for label in new]
    paths = [one.path for message in await services.store.messages(row.id) for one in message.attachments if one.path]
    workspace = await services.factory.workspace_of(principal, row.id)
    files = services.factory.labels.book.label_files(workspace, paths, joined(there, new))
    await services.store.write([*rows, audit, *files])
    await services.runs.adopt_labels(row.id, new)
    services.runs.notifier.notify(row.id)
