"""Patterns that are compiled at their first use: they find what those of `re` find, and none is broken."""

from __future__ import annotations

import re

import pytest

import routes.server
import routes.terminal.view  # noqa: F401
from tools.base import patterns
from tools.base.patterns import compile_all, lazy_pattern


def test_a_lazy_pattern_finds_what_a_compiled_one_finds() -> None:
    lazy, compiled = lazy_pattern("(?P<word>A+)b", re.IGNORECASE), re.compile("(?P<word>A+)b", re.IGNORECASE)
    text = "xaab AB"
    for _ in range(2):  # compiled, and then kept
        assert lazy.findall(text) == compiled.findall(text) == ["aa", "A"]
        assert lazy.sub(r"<\g<word>>", text) == compiled.sub(r"<\g<word>>", text)
        assert lazy.fullmatch("aab") and not lazy.fullmatch(text)
        assert (lazy.pattern, lazy.flags, lazy.groupindex) == (compiled.pattern, compiled.flags, compiled.groupindex)
    assert lazy_pattern(rb"\d").search(b"a1")


def test_a_broken_pattern_is_noticed_at_its_first_use() -> None:
    broken = lazy_pattern("(")
    try:
        with pytest.raises(re.error):
            broken.search("")
    finally:
        patterns._lazy.remove(broken)  # type: ignore[arg-type]


def test_the_patterns_of_all_modules_can_be_compiled() -> None:
    compile_all()
