"""Conversations leave in other forms and come back: no message, call, result or picture is lost."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.attachments import File
from app.core.messages import AskedCall, Message, as_json
from app.models.scripted import Scripted
from app.storage.files.kinds import file_of
from routes.transcripts.formats import Record, Skipped, Transcript, items_of
from routes.transcripts.importing import messages_of
from tests.support.models.pictures import png
from tests.support.server.dragoman_process import dragoman_at_home
from tests.support.server.serving import serving
from tests.support.transcripts import REAL, TRANSCRIPTS, claude, lines, messages, one_of, picture, result, use

TELLING = ("role", "text", "calls", "call", "name", "reasoning", "attachments", "untrusted")
PNGS: dict[str, File] = {one.attachment.sha256: one for one in (file_of(png(side, 2)) for side in (1, 2, 3))}
BASE64 = {sha256: base64.b64encode(one.data).decode() for sha256, one in PNGS.items()}
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
PICTURES = st.lists(st.sampled_from([one.attachment for one in PNGS.values()]), max_size=2).map(tuple)
CALLS = st.builds(
    lambda name, number, arguments: AskedCall(f"call_{number}", name, arguments, "native"),
    st.sampled_from(["bash", "mcp__a__b", "Größe"]),
    st.integers(0, 4),
    st.dictionaries(WORDS, st.one_of(WORDS, st.integers(), st.lists(st.none() | st.booleans())), max_size=2),
)
MESSAGES = st.one_of(
    st.builds(lambda text, files: Message("user", text, attachments=files), WORDS, PICTURES),
    st.builds(
        lambda text, thought, calls, files: Message(
            "assistant", text, tuple(calls), reasoning=thought, attachments=files
        ),
        WORDS,
        WORDS,
        st.lists(CALLS, max_size=2),
        PICTURES,
    ),
    st.builds(
        lambda text, number, files: Message("tool", text, call=f"call_{number}", attachments=files),
        WORDS,
        st.integers(0, 4),
        PICTURES,
    ),
)


def again(history: list[Message]) -> list[Message]:
    """The messages after they have been written as items and read."""
    items = [item for one in history for item in items_of(json.loads(json.dumps(as_json(one))), BASE64)]
    transcript, skipped = Transcript(), Skipped()
    transcript.add(1, Record(timed=[(None, item) for item in json.loads(json.dumps(items))]))
    found, files = messages_of(transcript.entries, skipped)
    assert not skipped and transcript.left_out == 0
    assert {file.attachment.sha256: file.data for file in files} == {
        one.sha256: PNGS[one.sha256].data for message in found for one in message.attachments
    }
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(MESSAGES, max_size=8))
def test_any_history_survives_as_items(history: list[Message]) -> None:
    once = again(history)
    assert [as_json(one) for one in again(once)] == [as_json(one) for one in once]
    names = [call.name for one in history for call in one.calls]
    assert [call.name for one in once for call in one.calls] == names
    assert len({call.id for one in once for call in one.calls}) == len(names)
    arguments = [call.arguments for one in history for call in one.calls]
    assert [call.arguments for one in once for call in one.calls] == arguments
    texts = sorted(one.text for one in history if one.role == "tool")
    settled = sorted(
        one.text for one in once if one.role == "tool" and one.text != "No result: the call was interrupted."
    )
    assert settled == texts
    spoken = [one.text for one in history if one.role == "user" and (one.text or one.attachments)]
    assert [one.text for one in once if one.role == "user"] == spoken
    timed = "".join(one.text for one in history if one.role == "assistant")
    assert "".join(one.text for one in once if one.role == "assistant").replace("\n\n", "") == timed.replace("\n\n", "")
    pictures = sorted(one.sha256 for message in history for one in message.attachments)
    assert sorted(one.sha256 for message in once for one in message.attachments) == pictures


def told(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = [{name: one[name] for name in TELLING if name in one} for one in found]
    for one in kept:
        for attachment in one.get("attachments", ()):
            attachment["name"] = ""
    return kept


MORE = lines(
    claude("user", [{"type": "text", "text": "Look"}, picture()]),
    claude("assistant", [{"type": "thinking", "thinking": "Hm", "signature": "x"}, use("c1", "Read", path="cat.png")]),
    claude("user", [result("c1", [{"type": "text", "text": "A cat"}, picture()])]),
    claude(
        "assistant", [{"type": "text", "text": "```python\nprint()\n```\n<script>alert(1)</script> [x](javascript:x)"}]
    ),
)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [*REAL, "more"])
@pytest.mark.parametrize("form", ["responses", "json"])
async def test_a_transcript_survives_an_export(tmp_path: Path, kind: str, form: str) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        data = (TRANSCRIPTS / REAL[kind]).read_bytes() if kind in REAL else MORE.encode()
        first, _ = await one_of(served, kind if kind in REAL else "claude", data)
        exported = await served.client.get(f"/sessions/{first}/export?format={form}")
        assert exported.headers["content-disposition"].endswith(".responses.json" if form == "responses" else ".json")
        second, state = await one_of(served, "responses" if form == "responses" else "dragoman", exported.content)
        assert state == "new" and second != first
        before, after = await messages(served, first), await messages(served, second)
        assert told(before) == told(after)
        for message in after:
            for one in message.get("attachments", ()):
                assert (await served.client.get(f"/sessions/{second}/files/{one['sha256']}")).status_code == 200


@pytest.mark.anyio
async def test_an_export_as_items_is_a_request_that_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path, model := Scripted(["On."])) as served:
        session, _ = await one_of(served, "claude", MORE)
        items = (await served.client.get(f"/sessions/{session}/export?format=responses")).json()
        items["input"].append({"role": "user", "content": "Go on"})
        answer = await served.client.post("/v1/responses", json=items | {"model": "dragoman/agent"})
        assert answer.status_code == 200 and answer.json()["output"][0]["content"][0]["text"] == "On."
        sent = [one.role for one in model.requests[0].messages if one.role != "system"]
        assert [one for one in sent if one != "user"] == ["assistant", "tool", "assistant"] and sent[-1] == "user"


class Elements(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.mark.anyio
async def test_html_is_one_file_that_runs_and_fetches_nothing(tmp_path: Path) -> None:
    attack = '![x](https://evil.example/p.png) <img src="https://evil.example" onerror="x"> [a](data:text/html,x)'
    async with serving(tmp_path, Scripted([])) as served:
        data = MORE + lines(
            claude("user", attack), claude("assistant", "| a | b |\n|---|---|\n| 1 | 2 |\n\n**fine** </style></body>")
        )
        session, _ = await one_of(served, "claude", data)
        answer = await served.client.get(
            f"/sessions/{session}/export?format=html", headers={"accept-language": "de-DE,de"}
        )
        page = answer.text
        assert answer.headers["content-type"].startswith("text/html") and "<h2>Du</h2>" in page
        assert answer.headers["content-security-policy"] and "attachment" in answer.headers["content-disposition"]
        elements = Elements(page).found
        names = {name for name, _ in elements}
        assert not names & {"script", "iframe", "link", "object", "base", "form"} and "table" in names
        sources = [attributes.get("src") or "" for name, attributes in elements if name == "img"]
        assert len(sources) == 2 and all(one.startswith("data:image/png;base64,") for one in sources)
        links = [attributes.get("href") or "" for name, attributes in elements if name == "a"]
        assert not [one for one in links if not one.startswith("https://")]
        assert not [name for _, attributes in elements for name in attributes if name.startswith("on")]
        assert "default-src 'none'" in page and "<strong>fine</strong>" in page


@pytest.mark.anyio
async def test_markdown_as_before(tmp_path: Path) -> None:
    replies = ["```bash\nprintf '\\140\\140\\140'\n```\n", "Done."]
    async with serving(tmp_path, Scripted(replies)) as served:
        events = await served.chat("Say three ticks")
        written = (await served.client.get(f"/sessions/{events[0]['session']}/export?format=markdown")).text
        assert written.startswith("# Say three ticks\n\n## You\n\nSay three ticks\n\n## Agent\n\n```bash\n")
        assert "**bash**" not in written
        assert "**Result of bash**\n\n````\n```\n````" in written and written.endswith("## Agent\n\nDone.\n")


@pytest.mark.anyio
async def test_the_command_line_imports_and_exports(tmp_path: Path) -> None:
    folder = tmp_path / "projects"
    (folder / "harbour").mkdir(parents=True)
    (folder / "harbour/one.jsonl").write_bytes((TRANSCRIPTS / REAL["claude"]).read_bytes())
    (folder / "harbour/two.jsonl").write_text(lines(claude("user", "Two", sessionId="s2"), "no JSON"))
    (folder / "three.jsonl").write_text("{}\n")
    async with serving(tmp_path, Scripted([])) as served:
        port = served.client.base_url.port

        async def dragoman(*words: str) -> Any:
            server = ("--server", f"http://127.0.0.1:{port}")
            return await asyncio.to_thread(dragoman_at_home, tmp_path, *words, *server)

        done = await dragoman("import", "claude", str(folder))
        assert done.returncode == 1 and "three.jsonl: " in done.stderr and "two.jsonl:2: skipped" in done.stderr
        found = dict(re.findall(r"^(ses_\w+)  new +(\d) messages", done.stdout, re.MULTILINE))
        assert sorted(found.values()) == ["1", "6"]
        assert "unchanged" in (await dragoman("import", "claude", str(folder / "harbour"))).stdout
        (large := tmp_path / "large.jsonl").touch()
        with large.open("wb") as file:
            file.truncate(1 << 30)
        refused = await dragoman("import", "codex", str(large), str(tmp_path / "none.jsonl"))
        assert refused.returncode == 1 and "64 MB" in refused.stderr and "No such file" in refused.stderr
        session = next(one for one, count in found.items() if count == "6")
    for form, words in {
        "markdown": "## You",
        "html": "<!doctype html>",
        "responses": '"input"',
        "json": '"events"',
    }.items():
        written = dragoman_at_home(tmp_path, "db", "export", session, "--format", form)
        assert (written.returncode, words in written.stdout) == (0, True), written
