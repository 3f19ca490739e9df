"""Any change of a transcript leaves it readable, or is refused; nothing in a file breaks the readers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.storage.runs import RunRow
from routes.protocol.errors import Refused
from routes.transcripts.formats import FORMATS, Skipped, items_of, transcripts_of
from routes.transcripts.importing import messages_of, rows_of
from tests.support.transcripts import REAL, TRANSCRIPTS, claude, lines, picture, result, use

OWN: dict[str, Any] = {
    "id": "ses_1",
    "messages": [
        {"role": "user", "text": "Hi", "at": 5.0, "attachments": [{"sha256": "x", "media_type": "image/png"}]},
        {"role": "assistant", "text": "", "calls": [{"id": "c1", "name": "bash", "arguments": {"command": "ls"}}]},
        {"role": "tool", "text": "a", "call": "c1", "name": "bash"},
    ],
    "files": {"x": picture()["source"]["data"]},
}
MORE = [
    claude("user", [result("c1", [picture()])]),
    claude("assistant", [use("c1", x=1)], isSidechain=True, agentId="a"),
]
SAMPLES: dict[str, list[Any]] = {
    "claude": [*map(json.loads, (TRANSCRIPTS / REAL["claude"]).read_text().splitlines()), *MORE],
    "codex": [json.loads(line) for line in (TRANSCRIPTS / REAL["codex"]).read_text().splitlines()],
    "opencode": [json.loads((TRANSCRIPTS / REAL["opencode"]).read_text())],
    "dragoman": [OWN],
    "responses": [{"input": [item for one in OWN["messages"] for item in items_of(one, OWN["files"])]}],
}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["text", "user"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "text", "role"]), inner),
    max_leaves=4,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*at, key))


def changed(value: Any, at: tuple[Any, ...], put: Any) -> Any:
    if not at:
        return put
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[at[0]] = changed(copied[at[0]], at[1:], put)
    return copied


PLACES = {kind: list(places(sample)) for kind, sample in SAMPLES.items()}


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_change_is_read_or_refused(kind: str, data: st.DataObject) -> None:
    sample = SAMPLES[kind]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.sampled_from(PLACES[kind][1:]))
        try:
            sample = changed(sample, at, data.draw(ANYTHING))
        except (KeyError, IndexError, TypeError):  # an earlier change has taken the place away
            continue
    for one in FORMATS:
        skipped = Skipped()
        try:
            found = transcripts_of(one, lines(*sample).encode("utf-8", "surrogatepass"), skipped)
        except Refused as refused:
            assert refused.code == "unknown_transcript"
            continue
        for transcript in found:
            messages, _ = messages_of(transcript.entries, skipped)
            row = RunRow("", session="ses_1", principal="ann", model="m", state="", created=0.0)
            rows = list(rows_of(row, messages, 0, 1e9)) if messages else []
            assert [each.created for each in rows if isinstance(each, RunRow)] == sorted(
                each.created for each in rows if isinstance(each, RunRow)
            )
            json.dumps(skipped)
            assert transcript.id.encode() is not None and transcript.model.encode() is not None


@pytest.mark.parametrize("data", [b"", b"\n", b"words\n\n", b"\r\n \r\n"])
def test_a_file_without_objects_is_of_no_format(data: bytes) -> None:
    with pytest.raises(Refused, match=r"docs/import\.md says which files are read"):
        transcripts_of("codex", data, Skipped())
