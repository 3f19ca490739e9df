"""Databases of earlier versions as SQL: `python -m tests.support.databases.earlier 9` writes the one of version 9.

A file is written once, by the version that it is of, and never changed: it is what people have on their disks.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from app.storage.sqlite.schema import SCHEMA
from app.storage.sqlite.store import SQLiteStore
from tests import ROOT

FOLDER = ROOT / "fixtures" / "databases"
DERIVED = ("message_", "memory_words")  # what triggers fill, and the tables inside of a full text index
SESSION, RUN, CALL, SHA = "ses_1", "run_1", "call_1", "f" * 64
_PRINCIPAL = {"principal": "ann", "session": SESSION, "run": RUN, "call": CALL}
_TIMES = {"created": 1_700_000_000.5, "at": 1_700_000_001.5}
_FILE = {"name": "cat.png", "sha256": SHA, "media_type": "image/png", "size": 6}
_MESSAGE = {"role": "user", "text": "Grüße, 你好", "calls": [], "attachments": [_FILE]}

# Table -> rows, of each the columns that its version has.
ROWS: dict[str, list[dict[str, Any]]] = {
    "sessions": [
        {"id": SESSION, "title": "Title 'quoted'\nand more", "disabled": '["bash"]', "updated": 1_700_000_100.0}
        | {"options": '{"profile":"careful"}', "pinned": 1, "archived": 0, "folder": "fld_1", "temporary": 0}
    ],
    "runs": [
        {
            "id": RUN,
            "model": "m",
            "state": "answered",
            "ended": 1_700_000_100.0,
            "joined": 1,
            "policy": '{"mode":"ask"}',
        }
    ],
    "events": [
        {"seq": 1, "type": "run.started", "data": '{"run":"run_1"}'},
        {"seq": 3, "type": "text.delta", "data": '{"text":"ab"}', "parts": "[1,1]"},
    ],
    "event_batches": [{"number": 1, "events": 'run_1\t4\ttext.delta\t{"text":"c"}\nrun_2\t1\tx\t{}'}],
    "messages": [
        {"position": 0, "message": json.dumps(_MESSAGE)},
        {"position": 1, "message": json.dumps({"role": "assistant", "text": "Done.", "calls": []})},
    ],
    "tokens": [
        {"sha256": SHA, "name": "ann", "role": "user", "tools": '["read_*"]', "disabled": "[]", "budget": '{"runs":2}'},
        {"sha256": "e" * 64, "name": "bob", "role": "admin", "expires": 1_800_000_000.0, "revoked": 1_700_000_002.0},
    ],
    "inbox": [{"position": 0, "text": "one more", "attachments": "[]"}],
    "idempotency": [{"key": "k", "body": SHA}],
    "state": [{"name": "paused", "value": "false"}],
    "approvals": [
        {
            "name": "bash",
            "arguments": '{"command":"ls"}',
            "fingerprint": "a" * 64,
            "reason": "It asks.",
            "expires": 1_700_000_300.5,
            "state": "approved",
            "decided": 1_700_000_003.5,
            "by": "ann",
            "scope": "session",
        },
        {
            "call": "call_2",
            "name": "write_file",
            "arguments": '{"path":"a"}',
            "fingerprint": "b" * 64,
            "reason": "It asks.",
            "expires": 1_700_000_300.5,
            "state": "denied",
            "decided": 1_700_000_004.5,
            "by": "ann",
            "note": "no",
            "origins": '[{"argument":"/path","start":0,"end":1,"kind":"person"}]',
            "door": "link",
        },
    ],
    "grants": [
        {"id": "grt_1", "tool": "bash", "fingerprint": "a" * 64, "created": 1_700_000_003.5, "by": "ann"},
        {"id": "grt_2", "tool": "write_file", "pattern": '{"path":"notes/*"}', "created": 1_700_000_005.5, "by": "ann"},
        {
            "id": "grt_3",
            "tool": "bash",
            "hosts": '["example.org"]',
            "by": "ann",
            "expires": 1_800_000_000.0,
            "tainted": 1,
        },
    ],
    "audit": [
        {
            "number": 7,
            "action": "bash",
            "decision": "ask",
            "why": "It asks.",
            "by": "policy",
            "fingerprint": "a" * 64,
            "facts": '{"role":"admin"}',
        }
    ],
    "used": [{"kind": "tokens", "period": "2023-11", "amount": 12.5}],
    "mcp_servers": [{"name": "files", "entry": '{"url":"http://127.0.0.1:9/"}', "enabled": 0, "by": "root"}],
    "mcp_pins": [{"server": "files", "tool": "read", "identity": "i", "digest": SHA, "definition": "{}"}],
    "mcp_trust": [
        {"server": "files", "tool": "", "identity": "i", "role": "user", "by": "root"},
        {"server": "files", "tool": "read", "identity": "i", "risk": "read", "untrusted": 0, "by": "root"}
        | {"arguments": '{"path":"path"}'},
    ],
    "summaries": [{"upto": 1, "text": "They met.", "before": 900, "after": 30}],
    "results": [{"name": "bash", "text": "a\nb"}],
    "endpoints": [{"name": "hosted", "spec": '{"url":"http://127.0.0.1:9/"}', "by": "root"}],
    "recordings": [{"run": RUN, "at": 1_700_000_001_500_000, "kind": "begin", "data": b"\x78\x9c\x00\xff"}],
    "files": [{"sha256": SHA, "bytes": b"\x89PNG\0\xff"}],
    "session_files": [{"sha256": SHA}],
    "documents": [
        {"id": "doc_1", "title": "Plan", "kind": "markdown", "version": 2, "seen": 1, "updated": 1_700_000_009.0}
    ],
    "document_versions": [
        {"document": "doc_1", "version": 1, "author": "model", "text": "# Plan"},
        {"document": "doc_1", "version": 2, "author": "person", "run": "", "call": "", "text": "# The plan"},
    ],
    "untrusted_marks": [{"place": "web_fetch", "at": 1_700_000_001_500_000, "digests": b"\x00\xff234567"}],
    "session_labels": [{"label": "customer", "source": "path", "detail": "read_file"}],
    "file_labels": [{"workspace": "/w", "path": "copy.txt", "label": "customer", "call": ""}],
    "document_suggestions": [
        {"document": "doc_1", "number": 1, "version": 2, "old": "The", "new": "A", "state": "open", "reported": 0}
        | {"reason": "Shorter."}
    ],
    "notification_targets": [
        {"id": "whk_1", "kind": "webhook", "name": "chat", "url": "https://example.org/in", "events": '["run.ended"]'}
        | {"everyone": 1, "version": 2, "keys": "{}", "state": "disabled", "reason": "It failed.", "failing": 1.5}
        | {"decides": 1}
    ],
    "session_digests": [{"state": "done", "messages": 2, "title": "Cats", "summary": "They met a cat."}],
    "deliveries": [
        {"id": "msg_1", "target": "whk_1", "kind": "run.ended", "subject": RUN, "detail": "answered", "state": "dead"}
        | {"attempts": 3, "due": 2.5, "status": 500, "error": "500", "finished": 3.5}
    ],
    "memories": [
        {
            "number": 1,
            "id": "mem_1",
            "owner": "ann",
            "digest": SHA,
            "kind": "fact",
            "text": "Grüße, 你好",
            "untrusted": 1,
        }
        | {"words": "Grüße, 你 好", "author": "model", "message": 0, "updated": 1_700_000_009.0}
        | {"labels": '["secret"]'}
    ],
    "memory_vectors": [
        {"memory": "mem_1", "owner": "ann", "digest": SHA, "embedder": "e5", "vector": b"\x00\x00\x80?"}
    ],
    "memory_jobs": [{"owner": "ann", "begins": 0, "ends": 2, "tries": 1}],
    "profiles": [
        {"owner": "", "name": "careful", "spec": '{"approval":"ask"}', "by": "root"},
        {"owner": "ann", "name": "short", "spec": '{"max_rounds":3}', "by": "ann"},
    ],
    "served_models": [
        {"name": "small", "path": "/models/small.gguf", "size": 98_362_432, "modified": 1_700_000_000_000_000_000}
        | {
            "header": "{}",
            "context": 8192,
            "slots": 2,
            "cache_type": "f16",
            "threads": 0,
            "at_start": 1,
            "forced": 0,
            "by": "root",
        }
    ],
    "schedules": [
        {"id": "sch_1", "name": "morning", "kind": "cron", "expression": "0 7 * * *", "zone": "Europe/Berlin"}
        | {"text": "Look.", "policy": "{}", "place": "new", "missed": "run", "jitter_s": 30.0, "enabled": 1}
        | {"next": 1_700_000_400.0}
    ],
    "triggers": [
        {"id": "trg_1", "name": "deploy", "scheme": "hmac", "secret": "c2FsdA", "text": "Look.", "template": "{{ref}}"}
        | {"policy": "{}", "place": "one", "enabled": 0}
    ],
    "occurrences": [
        {"origin": "sch_1", "occurrence": "1700000000", "outcome": "started", "reason": "", "due": 1_700_000_000.0}
    ],
    "helpers": [{"session": "ses_2", "parent_session": "ses_1", "parent_run": "run_0", "depth": 1}],
    "branches": [{"session": "ses_3", "tree": "ses_1", "parent": "ses_1", "after": "run_1"}],
    "branch_parts": [{"session": "ses_3", "place": 0, "origin": "ses_1", "until": 1_700_000_000.5}],
    "folders": [{"id": "fld_1", "name": "Grüße"}],
    "lists": [{"revision": 3}],
    "shares": [
        {"id": "shr_1", "sha256": SHA, "updated": 1_700_000_009.0, "title": "Cats", "options": "{}", "content": "[]"}
    ],
    "decision_links": [{"sha256": SHA, "target": "whk_1", "fingerprint": "a" * 64, "expires": 1_700_000_300.5}],
    "sign_ins": [
        {"id": "sgn_1", "sha256": SHA, "token": SHA, "device": "Firefox", "seen": 1_700_000_009.0, "expires": 1.8e9}
        | {"session": "sid_1"}
    ],
    "prompts": [{"owner": "ann", "name": "review", "about": "", "text": "Review {{file}}.", "updated": 1.5}],
    "preferences": [{"owner": "ann", "options": '{"options":{"temperature":0.5}}', "updated": 1.5}],
    "permissions": [
        {"id": "prm_1", "tool": "mcp__mail__send", "bounds": '{"arguments":{"to":["bob@example.org"]}}', "by": "ann"}
        | {"per_day": 3, "expires": 1_800_000_000.0}
    ],
    "conversation_keys": [{"key": "telegram:42"}],
    "members": [{"principal": "bot/42", "token": "bot", "member": "42", "account": "ann"}],
    "member_codes": [{"account": "ann", "token": "bot", "sha256": SHA, "expires": 1_700_000_600.5}],
    "permission_uses": [{"permission": "prm_1", "day": "2023-11-14", "uses": 2, "last": 1_700_000_009.0}],
    "secrets": [
        {"name": "github", "spec": '{"env":"GITHUB_TOKEN","hosts":["github.com"]}', "sealed": b"\x00\xff", "by": "root"}
    ],
    "spent": [
        {
            "month": "2023-11",
            "model": "m",
            "requests": 2,
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "cached_tokens": 1,
            "estimated_tokens": 0,
            "cost": 1500.0,
        }
    ],
}


async def set_pragma(store: SQLiteStore, setting: str) -> None:
    """Set it on both connections that write.

    The row that some settings return is fetched: a statement that is not done would hold its snapshot of the database.
    """
    assert store._loop_connection
    await store._writer.execute_fetchall(f"PRAGMA {setting}")
    store._loop_connection._connection.execute(f"PRAGMA {setting}").fetchall()


def made(version: int) -> sqlite3.Connection:
    """A new database of that version, with rows in every table."""
    database = sqlite3.connect(":memory:")
    for script in SCHEMA[:version]:
        database.executescript(script)
    for table, columns in tables(database).items():
        for row in (row for row in ROWS[table] if "hosts" in columns or "hosts" not in row):
            given = {name: value for name, value in (_PRINCIPAL | _TIMES | row).items() if name in columns}
            names, marks = ", ".join(given), ", ".join("?" * len(given))
            database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(given.values()))
    database.execute(f"PRAGMA user_version = {version}")
    database.commit()
    return database


def tables(database: sqlite3.Connection) -> dict[str, list[str]]:
    """Every table that keeps what was put into it, with its columns."""
    names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid").fetchall()
    kept = [name for (name,) in names if not name.startswith((*DERIVED, "sqlite_"))]
    return {name: [column[1] for column in database.execute(f"PRAGMA table_info({name})")] for name in kept}


def schema(database: sqlite3.Connection) -> list[str]:
    """All that makes the empty database, in order; what belongs to a full text index comes with that."""
    written = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT GLOB '*_words_*' ORDER BY rowid"
    return [sql for (sql,) in database.execute(written)]


def dump(database: sqlite3.Connection) -> Iterator[str]:
    """The database as statements."""
    [(version,)] = database.execute("PRAGMA user_version")
    yield from (f"{statement};" for statement in schema(database))
    for table, columns in tables(database).items():
        quoted = " || ', ' || ".join(f"quote({column})" for column in columns)
        for (values,) in database.execute(f"SELECT {quoted} FROM {table} ORDER BY rowid"):
            yield f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values});"
    yield f"PRAGMA user_version = {version};"


def path_of(version: int) -> Path:
    return FOLDER / f"version_{version}.sql"


if __name__ == "__main__":
    for number in map(int, sys.argv[1:]):
        with closing(made(number)) as new:
            path_of(number).write_text("\n".join((*dump(new), "")))
