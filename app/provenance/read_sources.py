"""Texts that a run's model has read, each with the kind of its source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MappingProxyType

from app.core.messages import Message
from app.core.spans import SourceKind
from app.provenance.read_texts import Source
from app.provenance.text_index import ReadText
from tools.builtin.delegation import DELEGATE

MOST_NAME = 80  # characters of a tool's name in the words for people
OF_TOOLS: MappingProxyType[str, SourceKind] = MappingProxyType(
    {
        "ask_user": "person",
        "read_file": "file",
        "list_files": "file",
        "search_files": "file",
        "read_skill": "file",
        "recall_memory": "memory",
        "read_document": "document",
        "read_session": "session",
        "list_sessions": "session",
        "ask_model": "model",
        "update_plan": "model",
        DELEGATE: "model",
    }
)
OF_PLACES: tuple[tuple[str, SourceKind], ...] = (  # the beginnings of the words that `quotation` has for them
    ("the persona", "operator"),
    ("the profile", "operator"),
    ("the instructions of the project", "file"),
    ("the system text", "client"),
    ("the summary", "model"),
)


def of_message(number: int, message: Message) -> Iterator[ReadText]:
    """Yield the texts of a message; what the model has written itself is none."""
    place, text, untrusted = "a message of this conversation", message.text, message.untrusted
    match message.role:
        case "tool":
            name = message.name or "a tool"
            kind = "client" if untrusted and OF_TOOLS.get(name) == "person" else OF_TOOLS.get(name, "result")
            yield ReadText(kind, message.call or "", f"the result of {name[:MOST_NAME]}", text, untrusted)
        case "user":
            if message.recalled:
                yield ReadText("memory", str(number), "the memory", message.recalled, untrusted)
            for one in message.attachments:
                if one.text:
                    yield ReadText("file", str(number), f"the file {one.file_name[:MOST_NAME]}", one.text, untrusted)
            kind = message.sender or ("client" if untrusted else "person")
            words = " ".join((text, *(one.name for one in message.attachments)))
            yield ReadText(kind, str(number), place, words, untrusted and kind != "person")
        case "assistant" if untrusted:
            yield ReadText("client", str(number), "an answer that the client has sent", text, untrusted=True)
        case "system":
            yield ReadText("client", str(number), "the prompt", text, untrusted)


def of_others(sources: Sequence[Source], *, tainted: bool) -> Iterator[ReadText]:
    """Yield texts of the prompt. A summary is untrusted if it may tell of such text, as words of servers are."""
    for one in sources:
        kind: SourceKind = next((kind for beginning, kind in OF_PLACES if one.place.startswith(beginning)), "result")
        yield ReadText(kind, "", one.place, one.text, tainted if kind == "model" else kind == "result")
