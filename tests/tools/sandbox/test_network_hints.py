"""A command that fails for want of a network says so; real programs in real boxes."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import aclosing
from pathlib import Path

import pytest

from tools.base.outcome import Result
from tools.builtin.network_hints import why_it_failed
from tools.builtin.shell import running
from tools.sandbox.sandbox import Bubblewrap, Landlock, NoSandbox, Unboxed, find_sandbox
from tools.tool import Context

FOUND = find_sandbox(levels=["bubblewrap"])
BOX = Bubblewrap(Path(), Path())
LANDLOCK = Landlock(Path())
bash = running("bash", "command")

FAILS = {
    "curl": "curl -sS https://site.example/",
    "wget": "wget -q -O- http://site.example/ || wget http://site.example/",
    "git": "git ls-remote https://site.example/a",
    "python3": "python3 -c 'import urllib.request as u; u.urlopen(\"http://site.example/\")'",
    "node": "node -e 'fetch(\"http://site.example/\")'",
    "ssh": "ssh a@site.example",
    "npm": "npm view x --fetch-retries=0",
    "bash": "exec 3<>/dev/tcp/192.0.2.255/80",
    "pip": "pip download --retries 0 x",
    "perl": "perl -MIO::Socket -e 'IO::Socket::INET->new(\"1.1.1.1:80\") or die $!'",
}
OWN = {
    "curl": "curl -sS localhost:8000",
    "wget": "wget -O- http://127.0.0.1:8000/",
    "python3": "python3 -c 'import socket; socket.create_connection((\"localhost\", 8000))'",
    "node": "node -e 'fetch(\"http://localhost:8000/\")'",
    "bash": "exec 3<>/dev/tcp/localhost/8000",
}


def told(folder: Path, command: str) -> Result:
    if isinstance(FOUND, NoSandbox):
        pytest.skip(FOUND.reason)

    async def main() -> Result:
        async with asyncio.timeout(100):
            async with aclosing(bash({"command": command}, Context(folder, 90, FOUND))) as news:
                *_, last = [seen async for seen in news]
        assert isinstance(last, Result)
        return last

    return asyncio.run(main())


def needs(program: str) -> None:
    if shutil.which(program, path="/usr/bin:/bin:/usr/local/bin") is None:
        pytest.skip(f"{program} is not installed")


@pytest.mark.parametrize("program", FAILS)
def test_a_command_that_fails_without_network_says_how_to_get_it(tmp_path: Path, program: str) -> None:
    needs(program)
    seen = told(tmp_path, FAILS[program])
    assert not seen.ok
    assert seen.text.endswith("that asks the person. localhost is the sandbox's own.]"), seen.text
    assert seen.text.count("call again with network: true") == 1


@pytest.mark.parametrize("program", OWN)
def test_a_service_of_this_machine_is_no_reason_to_ask(tmp_path: Path, program: str) -> None:
    needs(program)
    seen = told(tmp_path, OWN[program])
    assert not seen.ok and "network: true" not in seen.text, seen.text
    assert seen.text.endswith(
        "[localhost is the sandbox's own: nothing of this machine listens there. Start the server in the same call.]"
    ), seen.text


@pytest.mark.parametrize("command", ["echo 'Could not resolve host: x'", "echo broken; exit 1", "exit 7", "false"])
def test_nothing_is_added_to_what_succeeds_or_fails_for_another_reason(tmp_path: Path, command: str) -> None:
    assert "network" not in told(tmp_path, command).text


@pytest.mark.parametrize(
    "said",
    [
        'Get "https://a.example/": dial tcp: lookup a.example: connect: network is unreachable',
        "dial tcp: lookup a.example on [::1]:53: read udp [::1]:1->[::1]:53: read: connection refused",
        "error trying to connect: dns error: failed to lookup address information: Try again",
        "requests.exceptions.ConnectionError: ... Failed to resolve 'a.example' ([Errno -3] ...)",
        "npm error code EAI_AGAIN",
        "java.net.UnknownHostException: repo.example",
        "Error: connect ENETUNREACH 192.0.2.1:443 - Local (0.0.0.0:0)",
        "socket.gaierror: [Errno -2] Name or service not known",
        "error: failed to get `x` as a dependency: [6] Could not resolve hostname (Could not resolve host: a.example)",
        "Err:1 http://deb.example stable InRelease\n  Temporary failure resolving 'deb.example'",
    ],
)
def test_words_of_other_programs_are_known(said: str) -> None:
    assert "call again with network: true" in why_it_failed(said, 1, BOX, ())
    assert "network" not in why_it_failed(said, 0, BOX, ())
    assert why_it_failed(said, 1, Unboxed(Path()), ()) == ""
    assert "bubblewrap" in why_it_failed(said, 1, LANDLOCK, ())
    assert "HTTPS_PROXY" in why_it_failed(said, 1, BOX, ("*",))


def test_an_index_that_was_asked_means_what_it_says() -> None:
    said = "ERROR: No matching distribution found for x"
    assert "network: true" in why_it_failed(said, 1, BOX, ()) and why_it_failed(said, 1, BOX, ("*",)) == ""
