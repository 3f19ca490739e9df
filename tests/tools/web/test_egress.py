import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tools.base.schemas import argument_error
from tools.catalogue import TOOLS
from tools.web.egress import (
    ANYWHERE,
    covers,
    describe_hosts,
    host_pattern_error,
    hosts_wanted,
    normalise_hosts,
    normalise_network,
    pattern_of,
)

HAVE = [tool for tool in TOOLS if "network" in tool.parameters["properties"]]


def test_bash_and_python_have_the_argument() -> None:
    assert [tool.name for tool in HAVE] == ["bash", "python"]


@pytest.mark.parametrize(
    ("written", "canonical", "hosts"),
    [
        (None, None, ()),
        (False, None, ()),
        ([], None, ()),
        ("", None, ()),
        ("none", None, ()),
        (True, True, ANYWHERE),
        ("true", True, ANYWHERE),
        ("*", True, ANYWHERE),
        (["a.example", "*"], True, ANYWHERE),
        (["B.example.", "a.example", "a.example"], ["a.example", "b.example"], ("a.example", "b.example")),
        ("a.example, b.example:8443", ["a.example", "b.example:8443"], ("a.example", "b.example:8443")),
        (["https://u:p@a.example/simple/?q#f"], ["a.example"], ("a.example",)),
        (["https://a.example:8443"], ["a.example:8443"], ("a.example:8443",)),
        (["*.a.example"], ["*.a.example"], ("*.a.example",)),
        (["a b"], ["a b"], ("a b",)),  # the executor refuses it in words
        ([1], [1], ANYWHERE),  # the schema refuses these
        ({"a": 1}, {"a": 1}, ANYWHERE),
        (1, 1, ANYWHERE),
    ],
)
def test_network_has_one_form(written: object, canonical: object, hosts: tuple[str, ...]) -> None:
    assert normalise_hosts(written) == canonical
    assert hosts_wanted({"command": "x", "network": written}) == hosts
    assert normalise_network({"command": "x", "network": written}) == (
        {"command": "x"} if canonical is None else {"command": "x", "network": canonical}
    )
    fits = canonical is None or canonical is True or hosts != ANYWHERE
    assert fits == (
        argument_error("bash", HAVE[0].parameters, normalise_network({"command": "x", "network": written})) is None
    )


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(["command", "code", "network", "background"]), anything))
def test_the_door_is_total_and_idempotent_and_changes_no_meaning(arguments: dict[str, object]) -> None:
    for tool in HAVE:
        once = tool.normalise(arguments)
        assert tool.normalise(once) == once or once != once  # NaN
        if "network" in arguments:
            assert hosts_wanted(once) == hosts_wanted(arguments) or hosts_wanted(arguments) == ()
    describe_hosts(hosts_wanted(arguments))
    host_pattern_error(hosts_wanted(arguments))


@pytest.mark.parametrize(
    ("pattern", "host", "port", "fits"),
    [
        ("*", "a.example", 443, True),
        ("*:443", "a.example", 80, False),
        ("a.example", "a.example", 8443, True),
        ("a.example", "b.a.example", 443, False),
        ("a.example", "a.example.evil.test", 443, False),
        ("a.example", "evil-a.example", 443, False),
        ("a.example:8443", "a.example", 443, False),
        ("a.example:8443", "a.example", 8443, True),
        ("*.a.example", "b.a.example", 443, True),
        ("*.a.example", "c.b.a.example", 443, True),
        ("*.a.example", "a.example", 443, False),
        ("*.a.example", "evila.example", 443, False),
        ("192.0.2.1", "192.0.2.1", 443, True),
        ("[2001:db8::1]:443", "2001:db8::1", 443, True),
        ("2001:DB8:0::1", "2001:db8::1", 443, True),
    ],
)
def test_a_pattern_names_hosts(pattern: str, host: str, port: int, fits: bool) -> None:
    read = pattern_of(pattern)
    assert read and read.matches(host, port) == fits


@pytest.mark.parametrize(
    "pattern",
    ["", "a b", "a.example/x y", "*.*", "a.*", "a*b.example", "1.2.3", "0x7f.1", "a:0", "a:65536", "a:b", "[::g]"],
)
def test_a_pattern_that_names_no_host_is_none(pattern: str) -> None:
    assert pattern_of(pattern) is None
    assert "example.org" in str(host_pattern_error([pattern]))


@pytest.mark.parametrize(
    ("granted", "wanted", "yes"),
    [
        (["*"], ["*"], True),
        (["*"], ["a.example:22"], True),
        (["a.example"], ["*"], False),
        (["a.example"], ["a.example:8443"], True),
        (["a.example:8443"], ["a.example"], False),
        (["*.example"], ["a.example", "*.b.example"], True),
        (["*.example"], ["example"], False),
        (["*.a.example"], ["*.example"], False),
        (["a.example"], ["a.example", "b.example"], False),
        (["a.example", "b.example"], ["b.example"], True),
        (["a b"], ["a b"], False),
        ([], ["a.example"], False),
        ([], [], True),
    ],
)
def test_hosts_cover_hosts(granted: list[str], wanted: list[str], yes: bool) -> None:
    assert covers(granted, wanted) == yes
