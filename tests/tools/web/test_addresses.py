"""Which addresses are public, and which private ones a setting names."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from tools.web.addresses import is_allowed_private_host, is_global, is_valid_private_host, own_addresses

PUBLIC = """
1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.1 169.253.255.255
169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 203.0.112.255
223.255.255.255 168.63.129.15 2606:4700:4700::1111 2a00:1450:4001::200e 2001:4860:4860::8888 64:ff9b::808:808
::ffff:8.8.8.8 2606:4700::5efe:808:808
"""

NOT_PUBLIC = """
0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.254
168.63.129.16 169.254.0.1 169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1
192.88.99.1 192.168.0.1 192.168.255.255 198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.250
240.0.0.1 255.255.255.255
:: ::1 ::2 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0:127.0.0.1
64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::10.0.0.1 64:ff9b:1::7f00:1 64:ff9b:1::808:808 100::1 100:0:0:1::1
2001::1 2001:0:53aa:64c:0:0:80ff:fffe 2001:2::1 2001:10::1 2001:20::1 2001:db8::1 2002:7f00:1:: 2002:a00:1::
2002:808:808:: 2606:4700::5efe:7f00:1 2606:4700::200:5efe:10.0.0.1 3ffe::1 3fff::1 3fff:fff::1 4000::1 5f00::1
fc00::1 fd00::1 fd00:ec2::254 fd20:ce::254 fe80::1 fe80::1%1 febf::1 fec0::1 ff02::1 ff0e::1 ffff::1
"""


@pytest.mark.parametrize("address", PUBLIC.split())
def test_a_public_address(address: str) -> None:
    assert is_global(ip_address(address))


@pytest.mark.parametrize("address", NOT_PUBLIC.split())
def test_an_address_that_is_not_public(address: str) -> None:
    assert not is_global(ip_address(address))


@pytest.mark.parametrize(
    ("entry", "host", "port", "address", "named"),
    [
        ("wiki.example", "wiki.example", 80, "10.0.0.1", True),
        ("Wiki.Example.", "wiki.example", 8080, "10.0.0.1", True),
        ("wiki.example", "www.wiki.example", 80, "10.0.0.1", False),
        ("wiki.example", "wiki.example.org", 80, "10.0.0.1", False),
        ("wiki.example:8080", "wiki.example", 8080, "10.0.0.1", True),
        ("wiki.example:8080", "wiki.example", 80, "10.0.0.1", False),
        ("10.0.0.0/8", "anything.example", 80, "10.1.2.3", True),
        ("10.0.0.0/8", "anything.example", 80, "::ffff:10.1.2.3", True),
        ("10.0.0.7/8", "anything.example", 80, "10.1.2.3", True),
        ("10.0.0.0/8", "anything.example", 80, "11.1.2.3", False),
        ("10.0.0.0/8", "anything.example", 80, "fd00::1", False),
        ("127.0.0.1", "127.0.0.1", 9, "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", 9, "127.0.0.2", False),
        ("127.0.0.1:9", "127.0.0.1", 9, "127.0.0.1", True),
        ("127.0.0.1:9", "localhost", 9, "127.0.0.1", True),
        ("127.0.0.1:9", "127.0.0.1", 10, "127.0.0.1", False),
        ("[fd00::1]:9", "fd00::1", 9, "fd00::1", True),
        ("[fd00::1]:9", "fd00::1", 10, "fd00::1", False),
        ("[fd00::1]", "fd00::1", 10, "fd00::1", True),
        ("fd00::/8", "fd00::1", 10, "fd12::1", True),
        ("", "wiki.example", 80, "10.0.0.1", False),
        ("*", "wiki.example", 80, "10.0.0.1", False),
        (":80", "wiki.example", 80, "10.0.0.1", False),
        ("wiki.example:８０", "wiki.example", 80, "10.0.0.1", False),
    ],
)
def test_what_a_setting_names(entry: str, host: str, port: int, address: str, named: bool) -> None:
    assert is_allowed_private_host((entry,), host, port, ip_address(address)) is named
    assert is_allowed_private_host(("other.example", entry), host, port, ip_address(address)) is named
    assert not is_allowed_private_host((), host, port, ip_address(address))


NAMEABLE = (
    *("wiki.example", "Wiki.Example.", "wiki.example:8080", "build_1", "127.0.0.1", "127.0.0.1:9", "10.0.0.7/8"),
    *("[fd00::1]:9", "[fd00::1]", "fd00::1", "fd00::/8"),
)
NOBODY = (
    *("", "*", "*.example", ":80", "http://wiki.example", "wiki.example/page", "a b", "wiki.example:0"),
    *(
        "wiki.example:65536",
        "wiki.example:８０",
        "wiki.example:http",
        "10.0.0.0/33",
        "10.0.0",
        "10.0.0.256",
        "10.0.0.7:",
    ),
    *("me@wiki.example", "fd00::g", "fd00::/129"),
)


@pytest.mark.parametrize("entry", NAMEABLE + NOBODY)
def test_an_entry_that_can_name_nothing_is_known(entry: str) -> None:
    assert is_valid_private_host(entry) is (entry in NAMEABLE)


def test_this_machines_own_addresses_are_known() -> None:
    assert ip_address("127.0.0.1") in own_addresses()
