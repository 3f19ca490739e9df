"""The workspace as people see it: what is found changed, of which type files are, and which of them are private."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest

from app.core.events import FileChanged, Notice
from app.storage.checkpoints import FILE, Entry
from app.workspace.changes import BEGINNING, MOST_EVENTS, FileChange, changed_files, events_of
from app.workspace.content_types import media_type_of
from app.workspace.open_file import NotSent, open_file, size_now
from app.workspace.private_files import private_reason
from app.workspace.scanner import Look, ScanLimits, Scanner
from tests.support.models.pictures import CAT, LAW
from tools.base.outcome import ToolFailed


def scan(workspace: Path, passed_by: frozenset[str] = frozenset(), most: int = 10_000) -> Look:
    return Scanner({}, None, ScanLimits(files=most), passed_by).run(str(workspace))


def changed(before: Look, after: Look) -> list[tuple[str, str]]:
    return [(change.path, change.change) for change in changed_files(before, after, keeps=False)]


def test_what_was_made_changed_replaced_and_deleted_is_found(tmp_path: Path) -> None:
    for name in ("kept", "grown", "replaced", "gone", "moved"):
        (tmp_path / name).write_text("one")
    before = scan(tmp_path)
    (tmp_path / "grown").write_text("one more")
    same_time = (tmp_path / "replaced").stat()
    (tmp_path / "other").write_text("two")
    os.utime(tmp_path / "other", ns=(same_time.st_atime_ns, same_time.st_mtime_ns))
    (tmp_path / "other").rename(tmp_path / "replaced")  # of the same size and time
    (tmp_path / "gone").unlink()
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "moved").rename(tmp_path / "a/b/moved")
    assert changed(before, scan(tmp_path)) == [
        *(("a/b/moved", "created"), ("gone", "deleted"), ("grown", "modified")),
        *(("moved", "deleted"), ("replaced", "modified")),
    ]


def test_nothing_outside_is_looked_at_and_no_heavy_folder(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    for folder in (work, outside, work / ".git", work / "node_modules/x", work / "people/bob"):
        folder.mkdir(parents=True)
    before = scan(work, frozenset({"people"}))
    (outside / "secret").write_text("x")
    (work / "link").symlink_to(outside)
    (work / "to_file").symlink_to(outside / "secret")
    os.mkfifo(work / "pipe")
    for name in (".git/config", "node_modules/x/index.js", "people/bob/his"):
        (work / name).write_text("x")
    (work / "sub/people").mkdir(parents=True)
    (work / "sub/people/ours").write_text("x")
    assert changed(before, scan(work, frozenset({"people"}))) == [("sub/people/ours", "created")]


def test_of_too_many_files_only_what_has_just_changed_is_reported(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"f{number}").write_text("x")
    before = scan(tmp_path, most=30)
    assert not before.is_whole
    entries = dict([*before.entries.items()][5:])  # other ones were reached the first time
    later = Look(entries, before.began_ns + 10**12, is_whole=False)
    assert changed(later, scan(tmp_path, most=30)) == []
    assert changed(Look(entries, 0, is_whole=False), scan(tmp_path))


def test_events_are_bounded(tmp_path: Path) -> None:
    before = scan(tmp_path)
    for number in range(MOST_EVENTS + 5):
        (tmp_path / f"f{number:03}").write_text("x")
    *events, notice = events_of(changed_files(before, scan(tmp_path), keeps=False), tmp_path, "c1")
    assert len(events) == MOST_EVENTS and {event.type for event in events} == {"file.changed"}
    assert isinstance(notice, Notice) and "5 more files" in notice.message


def test_what_runs_on_the_owners_machine_says_so_and_is_not_among_the_rest(tmp_path: Path) -> None:
    (tmp_path / "old.mk").write_text("x")
    before = scan(tmp_path)
    for number in range(MOST_EVENTS):
        (tmp_path / f"f{number:03}").write_text("x")
    (tmp_path / "old.mk").unlink()
    (tmp_path / "web").mkdir()
    (tmp_path / "sub/.git/hooks").mkdir(parents=True)
    (tmp_path / "zz.mk").write_text("all:")
    (tmp_path / "package.json").write_text('{"dependencies": {}}')
    (tmp_path / "web/package.json").write_text('{"scripts": {"install": "x"}}')
    *events, _ = events_of(changed_files(before, scan(tmp_path), keeps=False), tmp_path, "c1")
    files = [event for event in events if isinstance(event, FileChanged)]
    assert len(files) == MOST_EVENTS and files == sorted(files, key=lambda event: event.path)
    assert {event.path: event.runs_at for event in files if not event.path.startswith("f")} == {
        **{"package.json": None, "sub/.git": "git", "web/package.json": "npm install", "zz.mk": "make"},
    }
    assert next(event.kind for event in files if event.path == "sub/.git") == "inode/directory"


def test_scripts_that_are_spelt_otherwise_or_far_behind_run_all_the_same(tmp_path: Path) -> None:
    before = scan(tmp_path)
    texts = {
        "escaped": '{"\\u0073cripts": {"install": "x"}}',
        "far": '{"a": "' + "a" * BEGINNING + '", "scripts": {"install": "x"}}',
        "none": '{"description": "a \\"quotation\\""}',
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "package.json").write_text(text)
    events = events_of(changed_files(before, scan(tmp_path), keeps=False), tmp_path, "c1")
    found = [event.runs_at for event in events if isinstance(event, FileChanged)]
    assert found == ["npm install", "npm install", None]


def test_however_many_files_come_before_it_one_that_runs_is_found(tmp_path: Path) -> None:
    entry = Entry(FILE, 0o600, 1)
    changes = [FileChange(f"!/{number}", "created", entry, None) for number in range(30_000)]
    events = events_of([*changes, FileChange("Makefile", "created", entry, None)], tmp_path, "c1")
    assert ("Makefile", "make") in [(one.path, one.runs_at) for one in events if isinstance(one, FileChanged)]


def zipped(*names: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return out.getvalue()


TYPES = [
    (CAT, "a.txt", "image/png"),
    (LAW, "law", "application/pdf"),
    (b"a,b\n1,2\n", "t.CSV", "text/csv"),
    ("Grüße".encode()[:4], "cut.md", "text/markdown"),  # in the middle of a character
    (b"<html><script>1</script>", "x.html", "text/html"),
    (b"a\0b", "x.csv", "application/octet-stream"),
    (b"", "empty", "text/plain"),
    (zipped("a.txt"), "a.docx", "application/zip"),
    (zipped("word/document.xml"), "a", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    (zipped("xl/workbook.xml"), "a", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    (b"\x1f\x8b\x08\0", "a.tgz", "application/gzip"),
    (b"\x7fELF\x02\0", "a", "application/x-executable"),
]


@pytest.mark.parametrize(("data", "name", "media_type"), TYPES, ids=[f"{row[1]} {row[2]}" for row in TYPES])
def test_the_type_is_that_of_the_content(data: bytes, name: str, media_type: str) -> None:
    assert media_type_of(data, name) == media_type


@pytest.mark.parametrize(
    "path",
    [
        *(".env", "a/.env.local", "key.PEM", ".ssh/known_hosts", "id_rsa", ".git/config", ".envrc"),
        *("x/.vscode/tasks.json", "credentials.json", ".ENV.", "deploy.env"),
    ],
)
def test_secrets_and_places_that_programs_obey_are_private(tmp_path: Path, path: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text("x")
    assert private_reason(path.split("/"))
    with pytest.raises(NotSent, match="is not sent"):
        open_file(tmp_path, path)
    assert size_now(tmp_path, path) is None


@pytest.mark.parametrize("path", [".env.example", "id_rsa.pub", "src/keys.py", "environment.txt", "a.md"])
def test_other_files_are_not_private(path: str) -> None:
    assert private_reason(path.split("/")) is None


def test_no_link_and_no_path_leads_out(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_text("x")
    (work / "link").symlink_to(tmp_path / "secret")
    (work / "folder").symlink_to(tmp_path)
    os.mkfifo(work / "pipe")
    paths = ["../secret", "sub/../../secret", "link", "folder/secret", "pipe", "sub", "", "/etc/passwd", "a\0b", "none"]
    for path in paths:
        with pytest.raises(ToolFailed):
            open_file(work, path)
        assert size_now(work, path) is None
