"""The changes of a run for people: a list of files and one diff, both bounded; and the model's notice of an undo."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from app.checkpoints.undo import PART, can_restore, shown_path
from app.storage.checkpoints import FILE, LINK, UNDONE, Changed, CheckpointRow, CheckpointStore, Entry
from app.workspace.changes import unkept_reason
from tools.base.diffs import unified_diff
from tools.base.patterns import lazy_pattern

MOST_FILES = 1_000  # listed
DIFF_CHARACTERS = 200_000  # of all files
LONGEST = 1 << 20  # bytes of a file whose lines are compared
MOST_NAMED = 20  # paths that the model learns of
NONE = "none"  # the state of a run without a checkpoint
_PLAIN = lazy_pattern(r"[\w./+@=-]{1,120}")  # a path that reads as a path, and not as a sentence
ONE_LINE = {ord(sign): " " for sign in "\r\n"}
NO_ROOM = "[not shown: there is too much before it]"
UNDONE_NOTICE = "An earlier run of this session was undone. The model receives the list of files that are as before it."


def report(store: CheckpointStore, run: str) -> dict[str, Any]:
    """Return the changes of a run as JSON. Raises StoreFailed."""
    row = store.row(run)
    if row is None:
        return {"run": run, "state": NONE, "files": [], "more_files": 0, "left_out": [], "undone_files": []}
    changes = store.changes(run)
    files = [one for one in changes if can_restore(one)]
    left_out = [one for one in changes if not can_restore(one)]
    return {
        "run": run,
        "state": row.state,
        "note": row.note,
        "undone_at": row.undone,
        "undone_by": row.undone_by or None,
        **report_of(store, files, left_out),
        "undone_files": _undone_files(store, run),
    }


def report_of(store: CheckpointStore, files: Sequence[Changed], left_out: Sequence[Changed]) -> dict[str, Any]:
    """Return changes as JSON. Raises StoreFailed."""
    return {
        "files": list(_with_diffs(store, files[:MOST_FILES])),
        "more_files": max(0, len(files) - MOST_FILES),
        "left_out": list(map(_left_out, left_out[:MOST_FILES])),
    }


def _undone_files(store: CheckpointStore, run: str) -> list[str]:
    """Return the paths that were undone one by one."""
    parts = [row for row in store.rows(UNDONE) if row.run.startswith(f"{run}{PART}")]
    return [shown_path(one.path) for row in parts for one in store.changes(row.run)][:MOST_FILES]


def _with_diffs(store: CheckpointStore, changes: Iterable[Changed]) -> Iterator[dict[str, Any]]:
    """Yield the changes with their differences, as long as all of these are not too much."""
    left = DIFF_CHARACTERS
    for one in changes:
        if left <= 0:
            yield _fields(one) | {"diff": NO_ROOM}
            continue
        diff = "\n".join(_diff_of(store, one))
        left -= len(diff) + 1
        yield _fields(one) | {"diff": diff}


def _fields(one: Changed) -> dict[str, Any]:
    sides = {"before": one.before, "after": one.after}
    kind = next(side.kind for side in (one.after, one.before) if side)
    shown = {name: {"size": side.size, "mode": f"{side.mode:03o}"} for name, side in sides.items() if side}
    return {"path": shown_path(one.path), "change": change_of(one), "kind": kind, **shown}


def _left_out(one: Changed) -> dict[str, Any]:
    return _fields(one) | {"reason": unkept_reason(one.path, one.before, one.after)}


def change_of(one: Changed) -> str:
    if one.before is None:
        return "created"
    return "removed" if one.after is None else "changed"


def _diff_of(store: CheckpointStore, one: Changed) -> Iterator[str]:
    """Yield the difference of a file as parts: a note on its mode, one on its content, or a unified diff."""
    before, after = one.before, one.after
    if before and after and before.mode != after.mode:
        yield f"[mode {before.mode:03o} -> {after.mode:03o}]"
    if (before.digest if before else b"") == (after.digest if after else b""):
        return
    sizes = f"{before.size if before else 0:,} -> {after.size if after else 0:,} bytes"
    if any(side and side.size > LONGEST for side in (before, after)):
        yield f"[too large to compare, {sizes}]"
        return
    texts = [_text(store, side) for side in (before, after)]
    if texts[0] is None or texts[1] is None:
        yield f"[not text, {sizes}]"
    elif texts[0] or texts[1]:
        yield unified_diff(shown_path(one.path).translate(ONE_LINE), texts[0], texts[1])


def _text(store: CheckpointStore, entry: Entry | None) -> str | None:
    """Return a content as text, None if it is none; a link is a line that names its target."""
    if entry is None or entry.kind not in (FILE, LINK):
        return ""
    data = store.content(entry.digest)
    if b"\0" in data:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return f"-> {text}" if entry.kind == LINK else text


def undone_message(store: CheckpointStore, rows: Sequence[CheckpointRow]) -> str:
    """Return the words by which a model learns that runs were undone."""
    paths = [shown_path(one.path) for row in rows for one in store.changes(row.run) if can_restore(one)]
    plain = list(dict.fromkeys(path for path in paths if _PLAIN.fullmatch(path)))[:MOST_NAMED]
    more = len(set(paths)) - len(plain)
    named = ", ".join(plain) + (f" and {more} more" if more and plain else "") if plain else f"{more} files"
    return f"[I have undone changes that you made in the workspace earlier. As before them are: {named}.]"
