"""The page's libraries: what lies in routes/page/vendor is what its table has, as released, with its licence."""

from __future__ import annotations

import hashlib
import re

import pytest

from routes.page import VENDORED_KINDS, vendored
from routes.page.vendored import TABLE, VENDOR, Library, libraries, read_table
from tests.tasks.vendor import LICENCE, vendored_names

FREE = {"MIT", "BSD-3-Clause", "BSD-2-Clause", "Apache-2.0", "ISC", "OFL-1.1"}
EACH = pytest.mark.parametrize("row", read_table(TABLE), ids=lambda row: row.name)


@EACH
def test_a_library_is_as_it_was_released(row: Library) -> None:
    there = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (VENDOR / row.name).iterdir()}
    assert there == row.sha256, "`make vendor` renews them; nothing here is changed by hand"
    assert {*row.files, LICENCE} == row.sha256.keys() and row.exports.keys() <= row.files.keys()


@EACH
def test_a_library_says_where_it_is_from_and_why_it_is_here(row: Library) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", row.version) and re.fullmatch(r"sha512-[\w+/]{86}==", row.integrity)
    assert row.source.startswith("https://") and row.licence in FREE and row.why
    assert "Copyright" in (VENDOR / row.name / LICENCE).read_text()


@EACH
def test_a_library_is_served_as_a_module(row: Library) -> None:
    for name in row.sha256:
        served, released = vendored(f"vendor/{row.name}/{name}"), (VENDOR / row.name / name).read_bytes()
        exported = f"\nexport default {row.exports[name]};\n".encode() if name in row.exports else b""
        assert served and served.body == released + exported
        assert served.kind == VENDORED_KINDS[name[name.rindex(".") :]]


def test_nothing_else_lies_there() -> None:
    assert {path.name for path in VENDOR.iterdir()} == {TABLE.name, *libraries()}
    assert [row.name for row in read_table(TABLE)] == sorted(libraries())
    assert vendored_names() and vendored("vendor/vendor.json") is None and vendored("vendor/highlight/../x") is None
