"""Content parts, whatever a client sends as such: they are read, or refused with a reason that names the place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routes.protocol.errors import Refused
from routes.protocol.message_parts import FileLimits, MessageRequest, files_of, set_bytes_apart, text_of
from routes.protocol.requests import checked
from tests.support.models.pictures import encoded, png

LIMITS = FileLimits(3, 1000)
PNG = encoded(png())
kinds = st.sampled_from(["text", "image", "file", "image_url", "audio", "", None, 5])
datas = st.sampled_from(
    [PNG, f"data:image/png;base64,{PNG}", "data:,x", "http://example.com", "é", "=", "\ud800", "", 5, None]
)
texts = st.sampled_from(["", "x", "\0", "\ud800", "a" * 300])
anything = st.recursive(st.one_of(texts, datas, st.none(), st.booleans()), lambda inner: st.lists(inner, max_size=3))
parts = st.fixed_dictionaries(
    {"type": kinds},
    optional={
        "text": st.one_of(texts, anything),
        "data": st.one_of(datas, anything),
        "name": st.one_of(texts, anything),
        "image_url": st.one_of(st.fixed_dictionaries({"url": datas}, optional={"detail": texts}), anything),
        "file": st.one_of(st.fixed_dictionaries({"file_data": datas}, optional={"filename": texts}), anything),
        "other": anything,
    },
)
messages = st.one_of(st.lists(st.one_of(parts, anything), max_size=5), anything)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(messages)
def test_any_message_is_read_or_refused(message: Any) -> None:
    fields = {"message": message}
    set_bytes_apart(fields)
    try:
        wish = checked(MessageRequest, fields)
        files = files_of(wish.message, LIMITS)
    except Refused as refused:
        assert refused.status in (413, 422)
        assert refused.message
        json.dumps(refused.message).encode("ascii")
        assert PNG not in refused.message, "nothing of what was sent comes back"
        return
    assert isinstance(text_of(wish.message), str)
    assert all(file.data in (png(), b"") for file in files)
    assert len(files) <= LIMITS.count


@pytest.mark.parametrize("wrap", [0, 1, 4, 76])
@pytest.mark.parametrize("end", ["\n", "\r\n", " "])
def test_base64_may_be_wrapped(wrap: int, end: str) -> None:
    lines = [PNG[at : at + wrap] for at in range(0, len(PNG), wrap)] if wrap else [PNG]
    fields = {"message": [{"type": "image", "data": end.join(lines)}]}
    set_bytes_apart(fields)
    [file] = files_of(checked(MessageRequest, fields).message, LIMITS)
    assert file.data == png()
