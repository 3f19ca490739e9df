"""`dragoman replay` and `dragoman export-test`: stored runs and recordings, by the code of this version."""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec
from msgspec import Struct

from app.config.settings import Loaded
from app.redaction.redactor import Redactor
from app.replay.checking import (
    OTHERWISE,
    SAME,
    UNUSABLE,
    Outcome,
    accepted,
    checked,
    checked_row,
    frames_now,
    recorded_or_derived,
)
from app.replay.playing import Played, Replay
from app.replay.recording import Recording, UnusableRecording, read_file, redacted, written
from app.storage.changes import StoreFailed
from app.storage.database import DATABASE
from app.storage.runs import RunRow
from app.storage.store import Store
from routes.cli.columns import failed
from routes.cli.tokens import with_store
from routes.cli.trials import trial_flags, try_runs
from routes.lanes.recorded_frames import frames_of
from routes.startup.storage import secrets_of

DAY_S = 86_400
MOST_JOBS = 8
CHUNK = 16  # runs of one process at a time
NOTHING = "Name runs or files, or choose some with --session or --all."
FOR_FILES = "--accept is for files that export-test wrote: name these only."
NO_RUN = "There is no run {run}. `dragoman db export SESSION` lists those of a session."
NO_RUNS = "There are no ended runs among these."
EXIT = {SAME: 0, OTHERWISE: 1, UNUSABLE: 2}


class How(Struct, frozen=True, kw_only=True):
    """Options of the replays of one command."""

    loaded: Loaded
    exact: bool
    in_current_settings: bool


def replay_flags(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    parser.add_argument("what", nargs="*", metavar="RUN|FILE", help="a run, or a file that export-test wrote")
    parser.add_argument("--session", help="all runs of this conversation")
    parser.add_argument("--all", action="store_true", help="all runs, as many days back as --days says")
    parser.add_argument("--days", type=float, default=30.0, help="with --all: days back (default: 30)")
    help_text = "let the settings of now hold in place of those that were recorded: what a new rule would have done"
    parser.add_argument("--current-settings", action="store_true", help=help_text)
    parser.add_argument("--exact", action="store_true", help="keep every border of the model's pieces, which is slower")
    parser.add_argument("--accept", action="store_true", help="write what the runs of files do now into the files")
    parser.add_argument("--jobs", type=int, default=0, help="processes (default: one a core, 8 at most)")
    parser.add_argument("--json", dest="as_json", action="store_true", help="write the outcomes as JSON")
    parser.add_argument("--model", help="ask this model, by the running server; with --system and --profile likewise")
    trial_flags(parser)
    return [parser]


def run_replay(args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    """Exit code 0 if all is the same, 1 if a run goes otherwise, 2 if a named one cannot be replayed."""
    if args.model or args.system or args.profile:
        return try_runs(args, loaded, environ)
    files = [Path(one) for one in args.what if _is_file(one)]
    names = [one for one in args.what if not _is_file(one)]
    if not (args.what or args.session or args.all):
        return failed(NOTHING)
    if args.accept:
        if names or args.session or args.all:
            return failed(FOR_FILES)
        return max(map(_accept, files))
    how = How(loaded=loaded, exact=args.exact, in_current_settings=args.current_settings)
    outcomes = [asyncio.run(_check_file(path, how)) for path in files]
    if names or args.session or args.all:
        found = _stored_runs(args, names, loaded)
        if isinstance(found, int):
            return found
        try:
            outcomes += _check_all(found, how, args.jobs)
        except StoreFailed as failure:
            return failed(failure)
    if not outcomes:
        return failed(NO_RUNS)
    print(as_json(outcomes) if args.as_json else "\n".join(report(outcomes)))
    named = {*names, *map(str, files)}
    counted = [one.state for one in outcomes if one.state != UNUSABLE or one.name in named]
    return max((EXIT[one] for one in counted), default=0)


def _is_file(word: str) -> bool:
    return word.endswith(".json") or os.sep in word


async def _check_file(path: Path, how: How) -> Outcome:
    try:
        recording = read_file(path)
    except UnusableRecording as unusable:
        return Outcome(str(path), UNUSABLE, reason=str(unusable))
    settings = how.loaded.settings if how.in_current_settings else None
    return await checked(recording, str(path), frames_of, exact=how.exact, settings=settings)


def _accept(path: Path) -> int:
    """Write what the run of a file does now into it. Exit code 1 if it cannot be replayed; then it stays as it is."""
    try:
        recording = read_file(path)
        played = asyncio.run(_played(recording))
        changed = accepted(recording, played, frames_now(recording, played, frames_of))
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_text(written(changed), encoding="utf-8")
        fresh.replace(path)
    except (UnusableRecording, OSError) as error:
        return failed(f"{path} stays as it is: {error}")
    print(f"{path}: what the run does now is what it is to do.")
    return 0


async def _played(recording: Recording) -> Played:
    return await Replay(recording).play()


def _stored_runs(args: argparse.Namespace, names: Sequence[str], loaded: Loaded) -> list[RunRow] | int:
    """Return the runs that the flags name, or the exit code of a failure."""
    found = list[RunRow]()

    async def look(store: Store) -> int:
        for name in names:
            row = await store.run(name)
            if row is None:
                return failed(NO_RUN.format(run=ascii(name)))
            found.append(row)
        if args.session:
            if await store.session(args.session) is None:
                return failed(f"There is no session {args.session!a}.")
            found.extend(row for row in await store.runs(args.session) if row.ended is not None)
        if args.all:
            found.extend(await store.ended_runs(time.time() - args.days * DAY_S))
        return 0

    return with_existing_store(loaded, look) or list({row.id: row for row in found}.values())


def with_existing_store(loaded: Loaded, work: Callable[[Store], Awaitable[int]]) -> int:
    """Run with the database, if there is one: a mistyped folder creates nothing. Exit code 1 without."""
    path = loaded.settings.data_dir / DATABASE
    if not (loaded.settings.postgres_url or path.exists()):
        return failed(f"there is no database {path}. Set --data-dir or DRAGOMAN_DATA_DIR.")
    return with_store(loaded, work)


def _check_all(rows: Sequence[RunRow], how: How, jobs: int) -> list[Outcome]:
    """Replay stored runs, in as many processes as there are cores."""
    chunks = [rows[at : at + CHUNK] for at in range(0, len(rows), CHUNK)]
    jobs = min(jobs or os.cpu_count() or 1, MOST_JOBS, len(chunks))
    if jobs <= 1:
        return _check_chunk(rows, how)
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, context, initializer=_Worker.enter, initargs=(how,)) as pool:
        return [one for those in pool.map(_Worker.check, chunks) for one in those]


class _Worker:
    """The state of a process of the pool: it is inherited, not sent."""

    how: How

    @classmethod
    def enter(cls, how: How) -> None:
        cls.how = how

    @classmethod
    def check(cls, rows: Sequence[RunRow]) -> list[Outcome]:
        return _check_chunk(rows, cls.how)


def _check_chunk(rows: Sequence[RunRow], how: How) -> list[Outcome]:
    outcomes, settings = list[Outcome](), how.loaded.settings

    async def check(store: Store) -> int:
        for row in rows:
            outcome = await checked_row(
                store, row, settings, frames_of, exact=how.exact, in_current_settings=how.in_current_settings
            )
            outcomes.append(outcome)
        return 0

    if with_store(how.loaded, check):
        raise StoreFailed("The database could not be read.")
    return outcomes


def report(outcomes: Sequence[Outcome]) -> Iterable[str]:
    """Return lines: the runs that go otherwise or cannot be replayed, what was not compared, and the sums."""
    counts = Counter(one.state for one in outcomes)
    for one in outcomes:
        if one.state == OTHERWISE:
            yield f"{one.name} goes otherwise:"
            yield from (f"  {difference.words}" for difference in one.differences)
    reasons = Counter(one.reason for one in outcomes if one.state == UNUSABLE)
    for reason, number in reasons.most_common():
        names = ", ".join([one.name for one in outcomes if one.reason == reason][:3])
        yield f"{number:,} cannot be replayed ({names}{' ...' if number > 3 else ''}): {reason}"
    missing = Counter(text for one in outcomes for text in one.missing)
    for text, number in missing.most_common():
        yield f"Of {number:,}: {text}"
    otherwise, replayed = counts[OTHERWISE], counts[OTHERWISE] + counts[SAME]
    runs = f"{replayed:,} replayed run{'' if replayed == 1 else 's'}"
    verb = "goes" if otherwise == 1 else "go"
    if replayed:
        yield f"{otherwise:,} of {runs} {verb} otherwise." if otherwise else f"{runs}: no difference."


def as_json(outcomes: Sequence[Outcome]) -> str:
    rows = [msgspec.to_builtins(one) for one in outcomes]
    for row, one in zip(rows, outcomes, strict=True):
        row["differences"] = [each.fields for each in one.differences]
    return json.dumps({"runs": rows, "counts": Counter(one.state for one in outcomes)}, indent=1)


def export_flags(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    parser.add_argument("run", metavar="RUN", help="the run that becomes a test; its file goes to standard output")
    return [parser]


def run_export(args: argparse.Namespace, loaded: Loaded, _: Mapping[str, str]) -> int:
    """Write the recording of a run. Exit code 1 if there is no such run, or it cannot be one."""

    async def write(store: Store) -> int:
        row = await store.run(args.run)
        if row is None:
            return failed(NO_RUN.format(run=ascii(args.run)))
        try:
            recording = await recorded_or_derived(store, row, loaded.settings)
        except UnusableRecording as unusable:
            return failed(unusable)
        sys.stdout.write(written(redacted(recording, Redactor(secrets_of(loaded.settings)))))
        for text in recording.missing:
            print(f"dragoman: {text}", file=sys.stderr)
        return 0

    return with_existing_store(loaded, write)
