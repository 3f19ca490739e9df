"""Public names: fit for every model API, of one tool each, the same whatever else there is."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.mcp.names import MAX_NAME, is_wanted, public_name

PLAIN = (("files", "read_file"), ("a-b", "c_d"), ("s", "a__b"), ("s", "_private"), ("s", "x" * (64 - 8)))
ODD = (
    ("files", "read.file"),
    ("my server", "run"),
    ("a__b", "c"),
    ("a_", "b"),
    ("_a", "b"),
    ("s", "x" * 300),
    ("s" * 80, "run"),
    ("s", "run_0123456789"),
    ("s", ""),
    ("🙂", "🙂"),
    ("s", "half \ud83d"),
)


@pytest.mark.parametrize(("server", "tool"), PLAIN)
def test_what_fits_is_not_changed(server: str, tool: str) -> None:
    assert public_name(server, tool) == f"mcp__{server}__{tool}"


@pytest.mark.parametrize(("server", "tool"), ODD)
def test_what_had_to_be_changed_has_a_hash(server: str, tool: str) -> None:
    name = public_name(server, tool)
    assert re.fullmatch(r"mcp__[A-Za-z0-9_-]+_[0-9a-f]{10}", name)
    assert len(name) <= MAX_NAME


def test_names_that_would_be_one_are_kept_apart() -> None:
    pairs = [*PLAIN, *ODD, ("a", "b__c"), ("a__b", "c"), ("a", "_b"), ("a_", "b"), ("s", "a.b"), ("s", "a:b")]
    pairs += [("s", "a_b"), ("s", "x" * 299 + "y"), ("s.", "a"), ("s", ".a")]
    assert len({public_name(*pair) for pair in pairs}) == len(set(pairs))


WORDS = st.text(alphabet="ab_-.é", max_size=12) | st.text(max_size=90)


@given(st.tuples(WORDS, WORDS), st.tuples(WORDS, WORDS))
def test_two_tools_never_share_a_name(one: tuple[str, str], other: tuple[str, str]) -> None:
    names = [public_name(*one), public_name(*other)]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
    assert (names[0] == names[1]) == (one == other)


def test_nobody_can_take_the_name_that_a_hash_made() -> None:
    taken = public_name("a b", "run")
    server, _, tool = taken.removeprefix("mcp__").partition("__")
    assert public_name(server, tool) != taken


def test_globs_include_and_exclude() -> None:
    assert is_wanted("read", (), ())
    assert is_wanted("read_file", ("read_*",), ())
    assert not is_wanted("write_file", ("read_*",), ())
    assert not is_wanted("read_secret", ("read_*",), ("*secret*",))
