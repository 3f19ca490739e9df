"""Patterns of grants: what `*` stands for in any argument, and where it ends."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.policy.grants import Grant, pattern_error
from app.policy.patterns import LONGEST_MATCHED, matches_pattern

# `h://` stands for `https://`.
FITS = [
    ("path", "notes/*", ["notes/a.txt", "notes/", "notes/a/b.txt", "notes/a b'\".txt"]),
    ("path", "note*", ["note.txt", "note", "notes/x"]),
    ("path", "*.py", ["a.py", "src/a.py", ".py"]),
    ("path", "a*b*c", ["abc", "axbxc", "abbcc", "aXbYbZc"]),
    ("path", "a?[b]", ["a?[b]"]),
    ("path", "a[*]b*", ["a*b", "a*bc"]),
    ("path", "[*]", ["*", "[*]"]),
    ("any", "*", ["", "a;b", "$(id)\n", "../x", "h://example.org"]),
    ("sql", "SELECT name FROM *", ["SELECT name FROM users", "SELECT name FROM users WHERE a = 'b'"]),
    ("sql", "a; b", ["a; b"]),
    ("sql", "a; *", ["a; b"]),  # the person wrote this one
    (
        "url",
        "h://example.org/*",
        ["h://example.org/", "h://example.org/a/b?c=d#e", "HTTPS://EXAMPLE.org/a"],
    ),
    ("url", "h://example.org*", ["h://example.org", "h://example.org/a", "h://example.org?a=b"]),
    ("url", "h://example.org/*", ["h://example.org:443/a", "h://example.org:/a"]),
    ("url", "h://example.org:8443/*", ["h://example.org:8443/a"]),
    ("url", "h://*.example.org/*", ["h://a.example.org/", "h://a.b.example.org/c"]),
    ("url", "h://*.example.org/x", ["h://a.example.org/x"]),
    ("url", "h://*/x", ["h://a.example.org/x"]),
    ("url", "h://[::1]:3000/*", ["h://[::1]:3000/a"]),
    ("url", "/docs/*", ["/docs/a"]),
    ("host", "*.example.org", ["a.example.org", "A.B.example.org"]),
    ("baseURL", "example.org/*", ["example.org/a"]),
    ("uri", "file:///srv/*", ["file:///srv/a"]),
    ("oldFilePath", "notes/*", ["notes/Smith, John/a.txt"]),
    ("recipient", "*@example.org", ["ann@example.org", "ann.smith+x@example.org"]),
    ("email_address", "*@example.org", ["ann@example.org"]),
    ("repository_url", "git@example.org:me/*", ["git@example.org:me/x.git"]),
    ("channel", "#team-*", ["#team-blue"]),
    ("branch", "feature/*", ["feature/1.2", "feature/x"]),
    ("glob", "src/**.py", ["src/a.py", "src/a/b.py"]),
    ("glob", "**/*.py", ["src/a.b/c.py"]),
    ("document", "*.txt", ["plan.txt"]),
    ("ip", "10.*", ["10.0.0.1"]),
    ("version", "1.*", ["1.2.3"]),
    ("query", "weather in *", ["weather in St. Ives / Cornwall"]),
]
FITS_NOT = [
    (
        "path",
        "notes/*",
        ["notes/../plan.txt", "notes/a/..", "notes\\..\\x", "notes/%2e%2e/x", "notes/%252e%252e%252fx"],
    ),
    ("path", "notes/*", ["notes", "Notes/a", "xnotes/a", " notes/a", "notes/a\n", "notes/\x00", "notes/\u202ea"]),
    ("path", "*.py", ["a.pyc", "a.py\n", "a;.py"]),
    ("path", "a?c", ["abc"]),
    ("path", "[ab]*", ["a", "b"]),
    ("path", "a[*]b", ["axb", "ab"]),
    ("path", "ab*ba", ["aba"]),
    (
        "cmdline",
        "ls *",
        ["ls ; id", "ls & id", "ls | id", "ls $(id)", "ls `id`", "ls\nid", "ls a\rid", "ls <(id)", "ls >f"],
    ),
    ("cmdline", "ls *", ["ls a\x0bid", "ls a\u2028id", "ls a\x85id", "ls a\x7f", "ls \ud800"]),
    ("sql", "SELECT * FROM t", ["SELECT 1; DROP TABLE t; SELECT 1 FROM t", "SELECT (SELECT 1) FROM t"]),
    ("sql", "a; *", ["a; b; c", "a; b | c"]),
    ("url", "h://example.org*", ["h://example.org.evil.net/", "h://example.org@evil.net", "h://example.orgx/"]),
    ("url", "h://example.org*", ["h://example.org:8443/", "h://example.org:80@evil.net/", "h://example.org./"]),
    ("url", "h://example.org/*", ["http://example.org/a", "h://user@example.org/a", "h://a.example.org/a"]),
    ("url", "h://example.org/*", ["h://example.org\\@evil.net/", "h://evil.net/h://example.org/"]),
    ("url", "h://example.org/*", ["h://example.org/a\tb", "h://exam\tple.org/a", "h://example.org/a b"]),
    ("url", "h://example.org/*", ["h://ex%61mple.org/a", "h://example.org%2f@evil.net/", "https:/example.org/a"]),
    (
        "url",
        "h://example.org/*",
        ["h:///example.org/a", "https:example.org/a", "//example.org/a", " h://example.org/a"],
    ),
    ("url", "h://example.org/*", ["h://еxample.org/a", "h://example。org/a", "h://example.org:x/a"]),
    ("url", "h://example.org/*", ["h://example.org/../a", "h://example.org/%2e%2e/a", "h://example.org/a&b"]),
    ("url", "h://example.org:8443/*", ["h://example.org/a", "h://example.org:84430/a"]),
    ("url", "h://*.example.org/*", ["h://example.org/", "h://evilexample.org/", "h://a.example.org.evil.net/"]),
    ("url", "h://*.example.org/*", ["h://evil.net/.example.org/", "h://evil.net#.example.org/", "h://.example.org/"]),
    ("url", "h://*.example.org/*", ["h://evil.net?.example.org/", "h://a@b.example.org/", "h://a.example.org:81/"]),
    ("url", "h://*example.org/*", ["h://example.org/", "h://evilexample.org/"]),
    ("url", "h://exam*.org/*", ["h://example.org/", "h://exam.evil.org/"]),
    ("url", "h://example.*", ["h://example.org", "h://example.evil.net"]),
    ("url", "http*", ["http://example.org", "h://evil.net/"]),
    ("url", "*://example.org/*", ["h://example.org/"]),
    ("url", "/*", ["//evil.net/", "/\\evil.net/", "h://evil.net"]),
    ("target", "*.example.org", ["h://evil.net/.example.org", "//evil.net/.example.org"]),
    ("host", "example.org*", ["example.org.evil.net", "example.org@evil.net", "example.org:8080"]),
    ("host", "*.example.org", ["example.org", "evil.net/.example.org", "evilexample.org", "a.example.org:81"]),
    ("text", "see *", ["see h://example.org", "see a@evil.net", "see --output=x", "see x, y"]),
    ("path", "*.txt", ["/etc/x.txt", "\\etc\\x.txt", "C:\\x.txt", "~/x.txt"]),
    (
        "recipient",
        "*@example.org",
        ["a@evil.net,b@example.org", "a@evil.net b@example.org"],
    ),
    (
        "recipient",
        "*@example.org",
        ["<x@evil.net>, a@example.org", "a%evil.net@example.org"],
    ),
    ("recipient", "team-*", ["team-a,all", "team-a all", "team-a@evil.net", "team-a.evil.net"]),
    ("email", "*@example.org", ["evil.net/@example.org", "evil.net?@example.org", "evil.net#@example.org"]),
    ("email_address", "*@example.org", ["a@evil.net,b@example.org", "//evil.net/@example.org"]),
    ("recipient", "ann@example*", ["ann@example.evil.net"]),
    ("args", "h://example.org/*", ["h://example.org/x,h://evil.net", "h://example.org/x,evil.net"]),
    ("url", "h://example.org/*", ["h://example.org/redirect?u=h://evil.net"]),
    ("target", "host*", ["host.evil.net", "host/x", "host:22", "hostx@evil.net", "host evil.net"]),
    ("target", "host*x", ["host.evil.tax"]),
    ("target", "*.example.org", ["evil.net/.example.org", "evil.net:1.example.org", "evil.net\\.example.org"]),
    ("destination", "bucket-*", ["bucket-x.evil.net"]),
    ("ip", "10.*", ["10.evil.net", "10.0.0.evil", "10.0.0.1:22"]),
    ("remote_file", "host*", ["host.evil.net:x"]),
    ("args", "git log *", ["git log --output=x", "git log x -p"]),
    ("args", "*.txt", ["--output=x.txt", "a.txt b.txt"]),
    ("repo", "me/*", ["me/x,you/y", "me/x@h://evil.net"]),
]


def spelled(rows: list[tuple[str, str, list[str]]]) -> list[tuple[str, str, list[str]]]:
    return [
        (name, pattern.replace("h://", "https://"), [one.replace("h://", "https://") for one in values])
        for name, pattern, values in rows
    ]


@pytest.mark.parametrize(("name", "pattern", "values"), spelled(FITS))
def test_what_a_pattern_is_for(name: str, pattern: str, values: list[str]) -> None:
    assert [value for value in values if not matches_pattern(name, value, pattern)] == []


@pytest.mark.parametrize(("name", "pattern", "values"), spelled(FITS_NOT))
def test_where_a_star_ends(name: str, pattern: str, values: list[str]) -> None:
    assert [value for value in values if matches_pattern(name, value, pattern)] == []
    covering = Grant("mcp__x__y", pattern={name: pattern})
    assert [value for value in values if covering.covers("ann", {name: value})] == []


@pytest.mark.parametrize("name", ["cmdline", "shell", "bash", "argv", "shellCommand", "run_cmd"])
def test_arguments_that_are_commands_are_read_as_a_shell_reads_them(name: str) -> None:
    assert "too wide" in (pattern_error("t", {name: "git *"}, {name: "git log"}) or "")
    reading = Grant("t", pattern={name: "git log *"})
    assert reading.covers("ann", {name: "git log -5"})
    assert not reading.covers("ann", {name: "git log --output=x"})


@given(st.text(), st.text())
def test_what_is_written_exactly_fits(name: str, text: str) -> None:
    assert matches_pattern(name, text, text) and matches_pattern(name, text, "*")
    assert matches_pattern(name, text, text.replace("*", "[*]"))


@given(
    st.sampled_from(["url", "path", "sql"]),
    st.text(),
    st.sampled_from(list(";&|$`<>()\n\r\t\0\x1b\u2028\u202e")),
    st.text(),
)
def test_no_star_takes_in_another_order(name: str, before: str, order: str, behind: str) -> None:
    for pattern in ("a*", "*a", "a*a", "https://example.org/*", "https://*.example.org/*"):
        value = pattern.replace("*", f"{before}{order}{behind}", 1)
        assert value == pattern or not matches_pattern(name, value, pattern)


def slow(text: str, pieces: list[str]) -> bool:
    """Every way to lay the pieces into the text, stars only over plain characters: the definition."""
    if len(pieces) == 1:
        return text == pieces[0]
    if not text.startswith(pieces[0]):
        return False
    rest, ends = text[len(pieces[0]) :], range(len(text) - len(pieces[0]) + 1)
    return any(";" not in rest[:end] and slow(rest[end:], pieces[1:]) for end in ends)


def test_of_all_ways_to_lay_a_pattern_one_is_found() -> None:
    texts = ["".join(one) for length in range(6) for one in itertools.product("a;b", repeat=length)]
    patterns = ["".join(one) for length in range(1, 5) for one in itertools.product("a;*", repeat=length)]
    for pattern in patterns:
        if pattern != "*":
            for text in texts:
                assert matches_pattern("x", text, pattern) == (text == pattern or slow(text, pattern.split("*"))), (
                    text,
                    pattern,
                )


def test_long_values_take_linear_time() -> None:
    text = "a" * LONGEST_MATCHED
    assert not matches_pattern("x", text, "*a" * 900 + "*b")
    assert matches_pattern("x", text, "*a" * 900 + "*")


def test_longer_values_are_matched_whole_or_not_at_all() -> None:
    text = "a" * (LONGEST_MATCHED + 1)
    assert not matches_pattern("x", text, "a*")
    assert not matches_pattern("x", text, "*a" * 900 + "*")
    assert matches_pattern("x", text, "*")
    assert matches_pattern("x", text, text)


@pytest.mark.parametrize(
    ("pattern", "arguments", "because"),
    [
        ({"cmd": "npm *"}, {"cmd": "npm test"}, "too wide"),
        ({"command": "ls; *"}, {"command": "ls; id"}, "not one command"),
        ({"code": "print(*)"}, {"code": "print(1)"}, "no pattern can bound"),
        ({"code": "*"}, {"code": "print(1)"}, "no pattern can bound"),
        ({"url": "https://exam*"}, {"url": "https://example.org/"}, "end of a host"),
        ({"path": "a*"}, {"path": "ab", "mode": "w"}, "path, mode"),
        ({"n": "1*"}, {"n": 12}, "does not match"),
        ({"list": '["a*"]'}, {"list": ["a", "b"]}, "does not match"),
    ],
)
def test_a_pattern_that_covers_nothing_says_why(
    pattern: dict[str, str], arguments: dict[str, object], because: str
) -> None:
    assert because in (pattern_error("t", pattern, arguments) or "")
    assert not Grant("t", pattern=pattern).covers("ann", arguments)


@pytest.mark.parametrize(
    ("pattern", "arguments"),
    [
        ({"cmd": "git log *"}, {"cmd": "git log -5"}),
        ({"n": "12"}, {"n": 12}),
        ({"list": '["a", "b"]', "flag": "true", "none": "*"}, {"list": ["a", "b"], "flag": True, "none": None}),
        ({"code": "print(1)"}, {"code": "print(1)"}),
    ],
)
def test_a_pattern_of_other_values(pattern: dict[str, str], arguments: dict[str, object]) -> None:
    assert pattern_error("t", pattern, arguments) is None
