"""Secrets that are cut off, or written within something that is itself written within something."""

from __future__ import annotations

import json

import pytest

from app.log.redacted_rows import redacted_row
from app.redaction.redactor import MARK, Redactor
from app.storage.approvals import ApprovalRow
from tests.app.redaction.test_redaction import KEY, half


def test_nobody_can_guess_a_secret_character_by_character() -> None:
    redactor = Redactor([KEY])
    told = [redactor.redact(KEY[:length]) for length in range(len(KEY) + 1)]
    assert told == [KEY[:length] if length < half(KEY) else MARK for length in range(len(KEY) + 1)]


@pytest.mark.parametrize("secret", ['qu"ote-4711-Zeisig', "back\\slash-4711", "schlüssel-4711"])
def test_a_secret_in_json_inside_of_json_is_hidden(secret: str) -> None:
    inside = json.dumps({"key": secret})
    whole = json.dumps({"tail": [inside]})
    redactor = Redactor([secret])
    assert json.loads(redactor.redact_json(whole)) == {"tail": [json.dumps({"key": MARK})]}
    row = ApprovalRow("r", "c", "s", "p", "bash", whole, "f", "because", 1.0, 2.0)
    told = redacted_row(row, redactor)
    assert isinstance(told, ApprovalRow)
    assert json.loads(told.arguments) == {"tail": [json.dumps({"key": MARK})]}
    plain = json.dumps({"text": 'a "quoted" \\ word'}, indent=1)
    assert redactor.redact_json(plain) is plain
