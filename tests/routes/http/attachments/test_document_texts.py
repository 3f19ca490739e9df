"""Documents of a message are text for a model that cannot read their bytes; the original lies in the workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.core.data_delimiters import without_codes
from app.core.provider import Ability
from app.models.scripted import Scripted
from app.workspace import document_texts
from parsing import Call
from tests.support.access.people import LIMIT_S
from tests.support.documents.hostile import HOSTILE, read
from tests.support.models.pictures import data_url, encoded, text_part
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio


class Reader(Scripted):
    """Reads no PDFs, and sees pictures or not."""

    sees = False

    def abilities(self) -> Sequence[Ability]:
        return [Ability("pdf", False, "server", "/props"), Ability("images", self.sees, "server", "/props")]


class Seer(Reader):
    sees = True


def part(name: str, data: bytes | None = None) -> dict[str, Any]:
    return {"type": "file", "data": encoded(read(name) if data is None else data), "name": name}


def reads(name: str, offset: int = 1) -> list[Call]:
    return [Call(0, "read_file", {"path": name, "offset": offset}, "native")]


def sent(model: Scripted, at: int = -1) -> str:
    return "\n".join(without_codes(one.text) for one in model.requests[at].messages if one.role == "user")


async def test_documents_are_sent_as_text_and_read_on(tmp_path: Path) -> None:
    model = Reader([reads("long.docx", 30), "Read.", "Still there."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model, window=8192) as served:
        names = ("report.pdf", "memo.docx", "long.docx")
        events = await served.chat([text_part("What is in them?"), *map(part, names)])
        assert events[-1]["text"] == "Read."
        [notice] = [event for event in events if event["type"] == "notice"]
        assert notice["message"].endswith("cannot see report.pdf: its text is sent instead.")
        text = sent(model, 0)
        assert "Text of report.pdf: PDF, 2 pages []:\n[page 1]\nQuarterly report" in text
        assert "Text of memo.docx: DOCX, 2 pages []:" in text and "The crane arrives on Tuesday." in text
        assert "; read_file from offset 10 has the others []:" in text and "zanzibar" not in text
        [result] = [event for event in events if event["type"] == "tool.finished"]
        assert result["text"].startswith(
            "[long.docx: DOCX, 1 part, as text in 122 lines; here from part 1 on]\nParagraph 28:"
        )
        assert all((tmp_path / "work" / name).read_bytes() == read(name) for name in names)
        session = (await served.client.get(f"/sessions/{events[0]['session']}")).json()
        message = session["messages"][0]
        assert message["untrusted"] and message["text"] == "What is in them?"
        assert not any("text" in attachment for attachment in message["attachments"])
        await served.chat("And now?", session=session["id"])
        assert text in sent(model), "the prefix stays"


async def test_pages_without_text_are_for_a_model_that_sees(tmp_path: Path) -> None:
    for folder in ("blind", "seer"):
        (tmp_path / folder).mkdir()
    async with asyncio.timeout(LIMIT_S), serving(tmp_path / "blind", blind := Reader(["-"])) as served:
        failed = (await served.chat([part("scan.pdf")]))[-1]
        assert (failed["code"], blind.requests) == ("no_vision", [])
        assert "(scan.pdf: its pages are pictures without text" in failed["message"]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path / "seer", Seer([reads("scan.pdf"), "A table."])) as served:
        events = await served.chat([part("scan.pdf")])
        assert events[-1]["text"] == "A table."
        assert len([event for event in events if event["type"] == "image"]) == 4


@pytest.mark.parametrize("name", ["an encrypted letter", "entities that grow"])
async def test_a_document_without_text_says_why(tmp_path: Path, name: str) -> None:
    file, make, why = HOSTILE[name]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model := Reader([reads(file), "I cannot."])) as served:
        events = await served.chat([part(file, make()), text_part("x")])
        assert why in sent(model, 0)
        [result] = [event for event in events if event["type"] == "tool.finished"]
        assert why in result["text"] and not result["ok"]


async def test_a_message_does_not_wait_long_for_its_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(document_texts, "extracted", never)
    monkeypatch.setattr(document_texts, "WAIT_S", 0.1)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model := Reader(["I could read it."])) as served:
        await served.chat([part("memo.docx"), part("otters.docx"), text_part("x")])
        assert sent(model).count(document_texts.SLOW) == 2


async def test_a_relayed_model_gets_the_text(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model := Reader(["On Tuesday.", "12 percent."])) as served:
        for name, wanted in (("memo.docx", "The crane arrives"), ("report.pdf", "Revenue grew by 12 percent")):
            file = {"filename": name, "file_data": data_url(read(name), "application/octet-stream")}
            content = [{"type": "file", "file": file}, {"type": "text", "text": "When?"}]
            body = {"model": model.model, "messages": [{"role": "user", "content": content}]}
            answer = await served.client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
            assert wanted in sent(model) and sent(model).endswith("When?")
