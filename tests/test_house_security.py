"""SECURITY.md says which test proves each control: they are there."""

from __future__ import annotations

import re

from tests.test_house import ROOT, functions, nothing, sources


def test_the_security_table_names_tests_that_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "SECURITY.md").read_text()))
    there = {function.name for source in sources() for function in functions(source.tree)}
    assert len(named) > 20
    nothing(sorted(named - there), because="SECURITY.md names these tests, which are not there:")
