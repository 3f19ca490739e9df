"""What a person can do about a database that failed."""

from __future__ import annotations


def advice(error: Exception) -> str:
    """What a person can do about it."""
    text = str(error)
    for sign, advice in ADVICE.items():
        if sign in text:
            return advice
    return "Check the file, its folder and the disk, or set DRAGOMAN_DATA_DIR to another folder."


ADVICE = {
    "not a database": "Move that file away, or set DRAGOMAN_DATA_DIR to another folder.",
    "disk is full": "Make room on the disk.",
    "locked": "Another process holds it: stop that one, or give this one another DRAGOMAN_DATA_DIR.",
    "readonly": "Make the file and its folder writable, or set DRAGOMAN_DATA_DIR to another folder.",
}
