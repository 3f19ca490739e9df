"""Attacks on labels: data that is read in another way, copied, or read elsewhere keeps its label.

Each conversation ends at the model `local` or not at all: `hosted`, which is asked first, must not see the data.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.access.labelled import SECRET, Labelled, added, labelled
from tests.support.server.events import of_kind
from tests.support.transcripts import imported

pytestmark = pytest.mark.anyio

CODE = "import base64; print(base64.b64decode(base64.b64encode(open('customers/a.txt','rb').read())).decode())"
READS = {
    "plain": "```read_file\ncustomers/a.txt\n```",
    "a path around": "```read_file\ncustomers/../customers/./a.txt\n```",
    "an absolute path": "```read_file\n{work}/customers/a.txt\n```",
    "a hard link": "```read_file\nhard.txt\n```",
    "an edit": "```edit_file\ncustomers/a.txt\n<<<<<<< SEARCH\nACME\n=======\nACME\n>>>>>>> REPLACE\n```",
    "a command": "```bash\ncat customers/a.txt\n```",
    "a glob": "```bash\ncat cust*/*\n```",
    "an expansion": '```bash\nd=customers; cat "$d/a.txt"\n```',
    "a link that is there": "```bash\ncat soft.txt\n```",
    "a link that is made": "```bash\nln -s customers/a.txt l; cat l\n```",
    "a folder link": "```bash\ncat folder/a.txt\n```",
    "a hard link in a command": "```bash\ncat hard.txt\n```",
    "a change of folder": "```bash\ncd customers && cat a.txt\n```",
    "base64": "```bash\nbase64 customers/a.txt | base64 -d\n```",
    "a recursive search": "```bash\ngrep -r ACME .\n```",
    "options with files": "```bash\nwc --files0-from=customers/a.txt\ncat hard.txt\n```",
    "python": f"```python\n{CODE}\n```",
    "a copy": "```bash\ncp customers/a.txt plain.txt; cat plain.txt\n```",
}


def work_of(folder: Path) -> Path:
    work = folder / "work"
    (work / "customers").mkdir(parents=True, exist_ok=True)
    (work / "customers" / "a.txt").write_text(f"{SECRET}\n")
    os.link(work / "customers" / "a.txt", work / "hard.txt")
    (work / "soft.txt").symlink_to("customers/a.txt")
    (work / "folder").symlink_to("customers")
    return work


async def test_however_the_data_is_read_it_goes_to_the_allowed_endpoint_only(tmp_path: Path) -> None:
    work = work_of(tmp_path)
    hosted = [reply.replace("{work}", str(work)) for reply in READS.values()]
    async with labelled(tmp_path, hosted, ["Fine."] * len(READS)) as one:
        for name in READS:
            events = await one.served.chat(f"By {name}.", approval="auto")
            finished = of_kind(events, "tool.finished")
            assert finished and added(events)[0][0] == ["customer"], (name, finished)
            assert one.holds() == ["local"] or name == "an edit", name
        assert one.holds() == ["local"]


HARMLESS = {
    "another file": "```read_file\nnote.txt\n```",
    "plain words": "```bash\necho hello; pwd | head -n 1\n```",
    "a named file": "```bash\ncat note.txt; ls; wc -l ./note.txt\n```",
    "a listing": '```list_files\n{"path": "."}\n```',
    "a write": "```write_file\nnew.txt\nhello\n```",
}


async def test_what_shows_no_labelled_data_has_no_label(tmp_path: Path) -> None:
    work = work_of(tmp_path)
    (work / "note.txt").write_text("Nothing.\n")
    async with labelled(tmp_path, [reply for one in HARMLESS.values() for reply in (one, "Fine.")]) as one:
        for name in HARMLESS:
            events = await one.served.chat(f"By {name}.", approval="auto")
            assert not added(events), name
            assert of_kind(events, "tool.finished")[0]["ok"], name


async def says(one: Labelled, *replies: str) -> list[str]:
    """Have the hosted model call this way in a conversation of its own; return the labels that it gets."""
    one.replies["hosted"][:] = [*replies, "Fine."]
    one.replies["local"][:] = [*replies[1:], "Fine.", "Fine."]
    events = await one.served.chat("Go on.", approval="auto")
    assert events[-1]["type"] == "run.finished", events[-1]
    return [label for labels, _ in added(events) for label in labels]


COPIES = {
    "cp": ("```bash\ncp customers/a.txt plain.txt\n```", "plain.txt"),
    "a rename": ("```bash\nmkdir -p d; cp customers/a.txt d/x; mv d moved\n```", "moved/x"),
    "python": ("```python\nopen('b64','w').write(open('customers/a.txt').read()[::-1])\n```", "b64"),
    "a cache folder": ("```bash\nmkdir -p node_modules; cp customers/a.txt node_modules/x\n```", "node_modules/x"),
    "a locked folder": ("```bash\nmkdir -p l; cp customers/a.txt l/x; chmod 0 l\n```", "l/x"),
    "another name of the copy": ("```bash\ncp customers/a.txt q; ln q q2; rm q\n```", "q2"),
}


async def test_a_copy_has_the_label_in_other_conversations_and_after_a_restart(tmp_path: Path) -> None:
    work_of(tmp_path)
    async with labelled(tmp_path) as one:
        for name, (command, _) in COPIES.items():
            assert await says(one, command) == ["customer"], name
    (tmp_path / "work" / "l").chmod(0o700)
    async with labelled(tmp_path) as one:  # the next server
        for name, (_, path) in COPIES.items():
            assert await says(one, f"```read_file\n{path}\n```") == ["customer"], name
            assert await says(one, f"```read_file\n{path.upper()}\n```") == ["customer"], name
        assert await says(one, "```write_file\nown.txt\nmine\n```") == []
        assert await says(one, "```read_file\nown.txt\n```") == []


async def test_words_of_a_labelled_conversation_are_labelled_in_files(tmp_path: Path) -> None:
    read, write = "```read_file\ncustomers/a.txt\n```", "```write_file\nreport.txt\nThey owe.\n```"
    async with labelled(tmp_path) as one:
        assert await says(one, read, write) == ["customer"]
        assert await says(one, "```read_file\nreport.txt\n```") == ["customer"]
        assert await says(one, "```bash\ncat report.txt\n```") == ["customer"]
        assert await says(one, "```bash\nls\n```") == ["customer"]  # names are data, too
        assert one.holds("They owe.") == ["local"]


async def test_the_output_of_a_job_is_labelled_wherever_it_is_read(tmp_path: Path) -> None:
    async with labelled(tmp_path, job_follow_up="false") as one:
        assert await says(one, "```bash\n#!bg\ncat customers/*\n```") == ["customer"]
        [job] = (await one.served.client.get("/jobs")).json()["jobs"]
        await one.served.client.get(f"/jobs/{job['id']}/events")  # until it has ended
        output = f'```job_output\n{{"id": "{job["id"]}"}}\n```'
        assert await says(one, output) == ["customer"]
        assert one.holds() == ["local"]
        assert await says(one, "```read_file\nanything.txt\n```") == ["customer"]  # the job may have written it


async def test_an_undo_brings_no_file_back_without_its_label(tmp_path: Path) -> None:
    async with labelled(tmp_path, ["```bash\ncp customers/a.txt x; rm x; cp customers/a.txt y\n```"], ["Fine."]) as one:
        events = await one.served.chat("Copy it.", approval="auto")
        assert await says(one, "```bash\nrm y\n```") == ["customer"]
        undone = await one.served.client.post(f"/runs/{events[0]['run']}/undo", json={})
        assert undone.status_code in (200, 409)
        (tmp_path / "work" / "y").write_text(SECRET)  # as it may come back
        assert await says(one, "```read_file\ny\n```") == ["customer"]
        session = events[0]["session"]
        assert await one.labels(session) == ["customer"]  # an undo takes no label away


def sent(name: str, data: str = "QUNNRQ==") -> list[dict[str, object]]:
    file = {"filename": name, "file_data": f"data:text/plain;base64,{data}"}
    return [{"type": "text", "text": "Look."}, {"type": "file", "file": file}]


async def test_files_of_a_marked_message_are_labelled_in_the_workspace(tmp_path: Path) -> None:
    async with labelled(tmp_path, ["Fine."], ["Fine.", "Fine."]) as one:
        events = await one.served.chat(sent("offer.txt"), labels=["customer"])
        assert events[-1]["type"] == "run.finished"
        assert await says(one, "```read_file\noffer.txt\n```") == ["customer"]
        one.replies["local"][:] = ["Fine."]
        other = await one.served.chat(sent("b.secret"))
        assert added(other) == [(["customer"], "path")]  # by its name
        one.replies["hosted"][:] = ["Fine."]
        events = await one.served.chat(sent("c.txt", "QUJD"))
        patch = {"labels": ["secret"]}
        assert (await one.served.client.patch(f"/sessions/{events[0]['session']}", json=patch)).status_code == 200
        assert await says(one, "```read_file\nc.txt\n```") == ["secret"]


async def test_another_principal_has_patterns_of_its_own_folder(tmp_path: Path) -> None:
    async with labelled(tmp_path) as one:
        book = one.served.services.factory.labels
        assert book is not None
        root = tmp_path / "work"
        bob = root / "people" / "bob"
        bob.mkdir(parents=True)
        (bob / "customers").mkdir()
        (bob / "customers" / "b.txt").write_text("B")
        assert book.book.of_path(bob, "customers/b.txt") == {"customer"}
        assert book.book.of_path(root, "people/bob/customers/b.txt") == {"customer"}
        assert book.book.of_path(bob, "../../customers/a.txt") == frozenset()  # which no tool reads
        assert book.book.present(bob) == {"customer"}
        book.book.label_files(bob, ["x"], frozenset({"secret"}))
        assert book.book.of_path(root, "people/bob/x") == {"secret"}
        assert book.book.of_path(root, "x") == frozenset()


async def test_helpers_other_sessions_and_the_memory_get_no_data_without_its_label(tmp_path: Path) -> None:
    read, ask = "```read_file\ncustomers/a.txt\n```", '```ask_model\n{"question": "ACME owes 4711. Much?"}\n```'
    task = '```delegate\n{"task": "Think about ACME owes 4711."}\n```'
    keep = '```remember\n{"text": "ACME owes 4711", "kind": "fact"}\n```'
    look = '```recall_memory\n{"query": "ACME"}\n```'
    flags = {"helpers": "true", "session_tools": "true", "memory": "true"}
    async with labelled(tmp_path, **flags) as one:
        one.replies["hosted"][:] = [read]
        one.replies["local"][:] = [task, "Of the helper.", ask, "A lot.", keep, look, "Fine."]
        events = await one.served.chat("Go on.", approval="auto")
        assert events[-1]["type"] == "run.finished", events[-1]
        assert one.holds() == ["local"]
        [helper] = [event["helper_session"] for event in of_kind(events, "helper.started")]
        assert await one.labels(helper) == ["customer"]
        ran = [event["name"] for event in of_kind(events, "tool.finished")]
        assert ran == ["read_file", "delegate", "ask_model", "remember", "recall_memory"]
        assert (await one.served.client.get("/memory")).json()["memories"][0]["labels"] == ["customer"]
        other = '```read_session\n{{"session": "{}"}}\n```'.format(events[0]["session"])
        assert await says(one, other) == ["customer"]
        assert one.holds() == ["local"]


async def test_an_export_and_an_import_take_no_label_away(tmp_path: Path) -> None:
    work_of(tmp_path)
    async with labelled(tmp_path) as one:
        assert await says(one, "```read_file\ncustomers/a.txt\n```") == ["customer"]
        [first] = (await one.served.client.get("/sessions")).json()["sessions"]
        for form, kind in (("json", "dragoman"), ("responses", "responses")):
            file = await one.served.client.get(f"/sessions/{first['id']}/export?format={form}")
            [done] = (await imported(one.served, kind, file.content))["sessions"]
            assert await one.labels(done["session"]) == ["customer"]
