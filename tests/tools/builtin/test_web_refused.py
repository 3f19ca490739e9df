"""web_fetch does not reach what is not public: however it is spelled, redirected to, or looked up."""

from __future__ import annotations

from contextlib import aclosing
from ipaddress import ip_address
from pathlib import Path

import httpx2
import pytest

from tests.support.fetching import HERE, World, fetch
from tests.support.models.upstream import Act, answer, upstream
from tools.base.outcome import ToolFailed
from tools.builtin.web_fetch import WebFetch
from tools.tool import Context
from tools.web.url_target import target

pytestmark = pytest.mark.anyio

# What a name of these resolves to does not matter for the spellings: no look-up may come that far.
HOSTS = """
127.0.0.1/ 127.0.0.1:80/ 127.0.0.1:8724/tools 127.0.0.1./ 127.0.0.2/ 127.1/ 127.0.1/ 127.65535/ 2130706433/
2130706433./ 017700000001/ 0177.0.0.1/ 0177.0.1/ 00000177.1/ 0x7f000001/ 0X7F000001/ 0x7f.0.0.1/ 0x7f.1/
0x7f.0x0.0x0.0x1/ 127.0.0.0x1/ 0x/ 127.000.000.001/ 127.0.0.01/ 0/ 0.0.0.0/ 00.0/ 4294967295/ 4294967297/
256.256.256.256/ 1.2.3.4.5/ 127.0.0.1.5/ example.127/ example.0x1/ .127.0.0.1/ 127..1/ %31%32%37.0.0.1/
127%2e0%2e0%2e1/ localhost%00.example.com/ 127.0.0.1%2f.example.com/ １２７.0.0.1/ ①②⑦.⓪.⓪.①/ 127。0。0。1/
127．0．0．1/ 127｡0｡0｡1/ 𝟏𝟐𝟕.𝟎.𝟎.𝟏/ ١٢٧.0.0.1/ 127.0.0.1\u200b/ 127.0.0.\u00ad1/ ⓛocalhost/ lo\u0441alhost\u202e/
10.0.0.1/ 172.16.0.1/ 192.168.1.1/ 100.64.0.1/ 169.254.169.254/latest/meta-data/ 169.254.169.254:80/ 2852039166/
0xa9fea9fe/ 0251.0376.0251.0376/ 169.254.43518/ 168.63.129.16/ 100.100.100.200/ 192.0.0.192/ 198.18.0.1/
192.0.2.1/ 224.0.0.1/ 255.255.255.255/ 240.0.0.1/ [::1]/ [::]/ [0:0:0:0:0:0:0:1]/ [::127.0.0.1]/
[::ffff:127.0.0.1]/ [::ffff:7f00:1]/ [::ffff:0:7f00:1]/ [0:0:0:0:0:ffff:a9fe:a9fe]/ [64:ff9b::7f00:1]/
[64:ff9b::169.254.169.254]/ [64:ff9b:1::7f00:1]/ [2002:7f00:1::]/ [2001::1]/ [2001:db8::1]/ [fd00:ec2::254]/
[fe80::1]/ [fe80::1%25eth0]/ [fe80::1%eth0]/ [2606:4700::1111%251]/ [fec0::1]/ [ff02::1]/
[2606:4700::5efe:7f00:1]/ [::1]:80/ [v1.x]/ [127.0.0.1]/ [::1/ ::1/ user@127.0.0.1/ user:password@example.com/
example.com@127.0.0.1/ @127.0.0.1/ 127.0.0.1\\@example.com/ example.com\\.127.0.0.1/ 127.0.0.1:80:80/
127.0.0.1:65536/ 127.0.0.1:-1/ /127.0.0.1/
"""
URLS = """
http:127.0.0.1/ http:/127.0.0.1/ //127.0.0.1/ 127.0.0.1 127.0.0.1:80 file:///etc/passwd
file://127.0.0.1/etc/passwd ftp://127.0.0.1/ gopher://127.0.0.1:6379/_INFO data:text/html,x javascript:alert(1)
ws://127.0.0.1/ unix:///run/docker.sock jar:http://127.0.0.1!/ HTTP+UNIX://x/ http:// :// /etc/passwd
"""
SPELLINGS = [f"http://{host}" for host in HOSTS.split()] + URLS.split()

# A name, what it resolves to, and why that may not be reached.
NAMES = {
    "localhost": ["127.0.0.1", "::1"],
    "localhost.": ["127.0.0.1"],
    "LOCALHOST": ["::1"],
    "printer.local": ["192.168.1.9"],
    "metadata.example": ["169.254.169.254"],
    "nat64.example": ["64:ff9b::7f00:1"],
    "mapped.example": ["::ffff:10.0.0.1"],
    "mixed.example": ["1.1.1.1", "10.0.0.1"],
    "mixed-last.example": ["1.1.1.1", "8.8.8.8", "2606:4700::1111", "fd00::1"],
    "127.0.0.1.nip.example": ["127.0.0.1"],
    "nothing.example": [],
}


def test_there_are_enough_spellings() -> None:
    assert len(set(SPELLINGS)) == len(SPELLINGS) > 100


@pytest.mark.parametrize(
    "url",
    [*SPELLINGS, "", " ", "http://a b/", "http://127.0.0.1\r\nHost: x/", "http://" + "a" * 300, "http://a/\ud800"],
)
async def test_a_spelling_is_refused_before_any_look_up(url: str) -> None:
    world = World()
    with pytest.raises(ToolFailed) as refused:
        await fetch(url, world, allowed=("other.example", "10.9.0.0/16"))
    assert (world.looked_up, world.connections) == ([], 0)
    assert any(word in str(refused.value) for word in ("write it", "public address", "leave out", "use a URL"))


@pytest.mark.parametrize("name", NAMES)
async def test_a_name_is_refused_by_what_it_resolves_to(name: str) -> None:
    plain = name.lower().rstrip(".")
    world = World({plain: [NAMES[name]]})
    with pytest.raises(ToolFailed, match=r"is not on the public internet.*private_hosts"):
        await fetch(f"http://{name}/", world)
    assert (world.looked_up, world.connections) == ([plain], 0)


async def test_this_machine_is_refused_on_its_public_addresses_too() -> None:
    url = httpx2.URL("http://1.1.1.1/")
    found = await target(url, (), World().resolve, lambda: {ip_address("8.8.8.8")})
    assert found.addresses == (ip_address("1.1.1.1"),)
    with pytest.raises(ToolFailed, match="not on the public internet"):
        await target(url, (), World().resolve, lambda: {ip_address("1.1.1.1")})


@pytest.mark.parametrize("port", [0, 65_536, 10**9])
async def test_a_port_that_does_not_exist_is_refused(port: int) -> None:
    with pytest.raises(ToolFailed, match=f"Port {port} does not exist"):
        await fetch(f"http://site.example:{port}/")


async def test_the_systems_own_answer_is_checked() -> None:
    async with upstream(answer("secret", kind="text/plain"), repeat=True) as server:
        tool = WebFetch()
        async with aclosing(tool({"url": f"http://localhost:{server.port}/"}, Context(Path("/")))) as news:
            with pytest.raises(ToolFailed, match="localhost is not on the public internet"):
                await anext(news)
        assert server.connections == 0


@pytest.mark.parametrize("port", [22, 25, 110, 1023])
async def test_a_public_port_of_another_service_is_refused(port: int) -> None:
    world = World({"site.example": [["1.1.1.1"]]})
    with pytest.raises(ToolFailed, match=f"Port {port} is not a web server's"):
        await fetch(f"http://site.example:{port}/", world)
    assert world.connections == 0


async def test_a_public_address_is_connected_to_under_its_name() -> None:
    page = httpx2.Response(200, text="hello")
    world = World({"site.example": [["1.1.1.1", "8.8.8.8"]]}, answers={"1.1.1.1": page})
    assert await fetch("https://site.example/a?b=1#c", world) == "hello"
    (request,) = world.requests
    assert str(request.url) == "https://1.1.1.1/a?b=1"
    assert request.headers["host"] == "site.example" and request.extensions["sni_hostname"] == "site.example"
    assert not {"authorization", "cookie", "referer"} & set(request.headers)
    assert world.looked_up == ["site.example"]


async def test_a_name_that_changes_its_address_gains_nothing() -> None:
    async with upstream(answer("the private one", kind="text/plain"), repeat=True) as private:
        # Public for whoever checks, this machine for whoever looks again.
        name = {"evil.example": [["1.1.1.1"], [HERE]]}
        world = World(name, answers={"1.1.1.1": httpx2.Response(200, text="harmless")})
        assert await fetch(f"http://evil.example:{private.port}/", world) == "harmless"
        assert world.looked_up == ["evil.example"]
        # Sent to itself, it is looked up again, and then checked again.
        back = httpx2.Response(302, headers={"location": "/again"})
        world = World({"evil.example": [["1.1.1.1"], [HERE]]}, answers={"1.1.1.1": back})
        with pytest.raises(ToolFailed, match="not on the public internet"):
            await fetch(f"http://evil.example:{private.port}/", world)
        assert world.connections == 1
        assert private.connections == 0


def moved(to: str, status: int = 302) -> Act:
    return answer("", status, location=to)


# Without a host they lead to the page's own server.
RELATIVE = ("http://", "http:///127.0.0.1/", "://")
TARGETS = [url for url in SPELLINGS if "://" in url and url not in RELATIVE] + [f"http://{name}/" for name in NAMES]


@pytest.mark.parametrize("to", TARGETS)
async def test_a_redirect_is_checked_like_the_first_url(to: str) -> None:
    world = World({name.lower().rstrip("."): [addresses] for name, addresses in NAMES.items()})
    # Headers are bytes; a server may write any.
    async with upstream(moved(to.encode().decode("latin-1"))) as server:  # another origin, each of them
        with pytest.raises(ToolFailed):
            await fetch(f"http://{HERE}:{server.port}/", world, allowed=(f"{HERE}:{server.port}",))
        assert server.connections == 1 and world.connections == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_another_port_of_this_machine_is_refused(status: int) -> None:
    async with upstream(answer("secret", kind="text/plain"), repeat=True) as private:
        async with upstream(moved(f"http://{HERE}:{private.port}/", status)) as server:
            with pytest.raises(ToolFailed, match="redirects to another site"):
                await fetch(f"http://{HERE}:{server.port}/", allowed=(f"{HERE}:{server.port}",))
        assert private.connections == 0


@pytest.mark.parametrize(
    ("first", "to"),
    [
        ("http://site.example/", "http://other.example/?q=secret"),
        ("http://site.example/", "https://www-site.example/"),
        ("https://site.example/", "//other.example/"),
        ("https://site.example/", "https://site.example:8443/"),
        ("http://site.example/", "https://site.example:8443/"),
        ("http://site.example:8080/", "https://site.example/"),
    ],
)
async def test_a_redirect_to_another_origin_is_a_question_of_its_own(first: str, to: str) -> None:
    led = httpx2.Response(302, headers={"location": to})
    every = {name: [["1.1.1.1"]] for name in ("site.example", "www-site.example", "other.example")}
    world = World(every, answers={"1.1.1.1": led})
    with pytest.raises(ToolFailed, match="call web_fetch with its own address") as failed:
        await fetch(first, world, allowed=("site.example", "www-site.example", "other.example"))
    shown = str(failed.value).removesuffix(failed.value.advice)
    assert shown.endswith(f": {httpx2.URL(first).join(to)}"), "model and person read all of it"
    assert world.looked_up == ["site.example"] and len(world.requests) == 1


@pytest.mark.parametrize(
    ("first", "to"),
    [
        ("http://site.example/", "https://site.example/"),
        ("http://site.example:80/", "https://SITE.example./here"),
        ("https://site.example/", "https://site.example:443/here"),
        ("https://site.example/a", "/b"),
    ],
)
async def test_a_redirect_within_one_origin_is_followed(first: str, to: str) -> None:
    led, here = httpx2.Response(302, headers={"location": to}), httpx2.Response(200, text="here")
    here.headers["content-type"] = "text/plain"
    world = World({"site.example": [["1.1.1.1"], ["1.1.1.2"]]}, answers={"1.1.1.1": led, "1.1.1.2": here})
    assert (await fetch(first, world)).endswith("\nhere")


async def test_a_redirect_to_less_safety_is_refused() -> None:
    down = httpx2.Response(302, headers={"location": "http://site.example/"})
    world = World({"site.example": [["1.1.1.1"]]}, answers={"1.1.1.1": down})
    with pytest.raises(ToolFailed, match=r"redirects to http://site\.example/, which is not encrypted"):
        await fetch("https://site.example/", world)
    assert world.connections == 1


async def test_a_redirect_is_not_followed_for_ever() -> None:
    async with upstream(moved("/again"), repeat=True) as server:
        with pytest.raises(ToolFailed, match="redirects more than 5 times"):
            await fetch(f"http://{HERE}:{server.port}/", allowed=(HERE,))
        assert server.connections == 6
