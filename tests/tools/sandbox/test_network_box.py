"""Real programs in a real box: with network they reach what their call names, and never this machine."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import select
import socket
import subprocess
import tarfile
from contextlib import aclosing
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import trustme

from tests.support.sandbox.jobs import ANN, SESSION, end_of, opened, until
from tests.support.sandbox.sites import THERE, Site, site
from tests.support.sandbox.wheels import needs, wheel
from tools.base.outcome import Progress, Result
from tools.catalogue import TOOLS
from tools.sandbox.sandbox import Bubblewrap, Landlock, NoSandbox, find_sandbox
from tools.tool import Context

FOUND = find_sandbox(levels=["bubblewrap"])
pytestmark = pytest.mark.skipif(isinstance(FOUND, NoSandbox), reason=getattr(FOUND, "reason", ""))


def box_for(*sites: Site, network: bool = False, closed: tuple[int, ...] = ()) -> Bubblewrap:
    private = [one.host for one in sites]
    box = find_sandbox(levels=["bubblewrap"], private_hosts=private, network=network, closed_ports=closed)
    assert isinstance(box, Bubblewrap)
    return box


def ran(
    folder: Path, box: Bubblewrap | Landlock, command: str, network: object = None, *, tool: str = "bash", **more: Any
) -> Result:
    """What the tool says, through the same door as a model's call."""
    [row] = [one for one in TOOLS if one.name == tool]
    arguments = {
        {"bash": "command", "python": "code"}[tool]: command,
        **({} if network is None else {"network": network}),
    }

    async def main() -> Result:
        async with asyncio.timeout(100):
            async with aclosing(row.run(row.normalise(arguments), Context(folder, 90, box))) as news:
                *_, last = [seen async for seen in news]
        assert isinstance(last, Result)
        return last

    return asyncio.run(main())


def test_a_command_reaches_what_its_call_names_and_says_so(tmp_path: Path) -> None:
    with site({"/": b"a page"}) as there:
        box = box_for(there)
        for network in (True, [THERE], [there.host]):
            seen = ran(tmp_path, box, f"curl -sS {there.url}/", network)
            assert seen.ok and seen.text == f"a page\n[network: reached {THERE}]", seen.text
        assert len(there.asked) == 3
        seen = ran(tmp_path, box, f"curl -sS --fail {there.url}/", ["a.example"])
        assert not seen.ok and f'ask again with network: ["a.example", "{THERE}"]]' in seen.text
        assert len(there.asked) == 3


def test_without_the_argument_there_is_no_network_and_no_proxy(tmp_path: Path) -> None:
    with site({"/": b"a page"}) as there:
        looked = "env | grep -ic proxy; ls /run/network; ss -ltn 2>/dev/null | grep -c 61080; "
        for network in (None, False, list[str]()):
            seen = ran(tmp_path, box_for(there), f"{looked} wget -q -O- {there.url}/", network)
            assert not seen.ok and seen.text.startswith("0\nls: cannot access")
        assert there.asked == []


REACH = """
import os, socket, urllib.request
def tried(reach):
    try:
        return reach()
    except OSError as error:
        return f"{type(error).__name__}"
def direct(host, port):
    with socket.create_connection((host, port), timeout=5) as there:
        there.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
        return there.recv(100).decode()
def proxied(host, port):
    shown = f"[{host}]" if ":" in host else host
    with socket.create_connection(("127.0.0.1", 61080), timeout=5) as there:
        there.sendall(f"CONNECT {shown}:{port} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".encode())
        return there.recv(100).decode().split("\\r\\n")[0]
for host in HOSTS:
    print(host, "|", tried(lambda: direct(host, PORT)), "|", tried(lambda: proxied(host, PORT)))
"""


def own_address() -> list[str]:
    """The address that this machine has for others, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.255", 9))  # sends nothing
        except OSError:
            return []
        return [probe.getsockname()[0]]


@pytest.mark.parametrize("every_call", [False, True])
def test_neither_directly_nor_through_the_proxy_is_this_machine_reached(tmp_path: Path, every_call: bool) -> None:
    hosts = ["127.0.0.1", "::1", "localhost", "0.0.0.0", "::ffff:127.0.0.1", socket.gethostname(), *own_address()]
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listening:
        listening.setblocking(False)
        port = listening.getsockname()[1]
        code = f"HOSTS, PORT = {hosts}, {port}\n{REACH}"
        box = box_for(network=every_call)
        seen = ran(tmp_path, box, code, None if every_call else True, tool="python")
        lines = [line for line in seen.text.splitlines() if " | " in line]
        assert len(lines) == len(hosts), seen.text
        assert all(" 403 " in line or " 502 " in line for line in lines) and "200" not in seen.text, seen.text
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_a_redirect_to_this_machine_leads_nowhere(tmp_path: Path) -> None:
    with site({"/secret": b"the secret"}) as other, site() as there:
        there.moved = {"/": f"{other.url}/secret", "/local": "http://127.0.0.1:1/", "/meta": "http://169.254.169.254/"}
        for path in there.moved:
            seen = ran(tmp_path, box_for(there), f"curl -sSL --noproxy none --fail {there.url}{path}", True)
            assert not seen.ok and "the secret" not in seen.text and "was refused: it is not on the public" in seen.text
        assert other.asked == []


def test_the_boxs_own_loopback_works_beside_it(tmp_path: Path) -> None:
    serve = "echo inside > page; python3 -m http.server 8000 >/dev/null 2>&1 & "
    fetch = "until curl -sS http://localhost:8000/page 2>/dev/null; do :; done"
    with site() as there:
        for network in (None, True):
            seen = ran(tmp_path, box_for(there), serve + fetch, network)
            assert seen.ok and seen.text == "inside", seen.text


def test_sandbox_network_gives_it_to_every_call_and_still_through_the_proxy(tmp_path: Path) -> None:
    with site({"/": b"a page"}) as there:
        box = box_for(there, network=True)
        assert not box.boxed
        assert ran(tmp_path, box, f"curl -sS {there.url}/").text.startswith("a page")
        assert "was refused" in ran(tmp_path, box, f"curl -sS {there.url}/", ["a.example"]).text
        closed = box_for(there, network=True, closed=(there.port,))
        assert "was refused: it is not on the public" in ran(tmp_path, closed, f"curl -sS {there.url}/").text


def test_landlock_says_why_it_gives_no_network(tmp_path: Path) -> None:
    box = find_sandbox(levels=["landlock"], network=True)
    if not isinstance(box, Landlock):
        pytest.skip(getattr(box, "reason", "no Landlock"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        reach = f"exec 3<>/dev/tcp/127.0.0.1/{listening.getsockname()[1]} && echo reached"
        assert "reached" not in ran(tmp_path, box, reach).text
    seen = ran(tmp_path, box, "echo ran", True)
    assert not seen.ok and "Install bubblewrap" in seen.text and "ran\n" not in seen.text


@pytest.mark.parametrize("network", [["a b"], ["https://a b/"], ["*.*"], [f"h{n}.example" for n in range(51)]])
def test_hosts_that_name_none_are_refused_in_words(tmp_path: Path, network: list[str]) -> None:
    seen = ran(tmp_path, box_for(), "echo ran", network)
    assert not seen.ok and "example.org" in seen.text and "ran\n" not in seen.text


# Real programs.


@needs("curl", "wget")
def test_tls_reaches_from_the_program_to_the_host(tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with site({"/": b"safe"}, ca.issue_cert(THERE)) as there:
        url, box = f"https://{there.host}/", box_for(there)
        assert ran(tmp_path, box, f"curl -sS --cacert ca.pem {url}", True).text.startswith("safe\n")
        assert ran(tmp_path, box, f"wget -q -O- --ca-certificate=ca.pem {url}", True).text.startswith("safe\n")
        context = "ssl.create_default_context(cafile='ca.pem')"
        fetch = f"import ssl, urllib.request as u\nprint(u.urlopen('{url}', context={context}).read())"
        assert "b'safe'" in ran(tmp_path, box, fetch, True, tool="python").text
        assert not ran(tmp_path, box, f"curl -sS {url}", True).ok  # not trusted, whatever is between


@needs("git")
def test_git_clones(tmp_path: Path) -> None:
    origin, work = tmp_path / "origin", tmp_path / "work"
    work.mkdir()
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    for words in (["init", "-q", str(origin)], ["-C", str(origin), "commit", "-q", "--allow-empty", "-m", "the first"]):
        subprocess.run([*git, *words], check=True)
    subprocess.run([*git, "-C", str(origin), "update-server-info"], check=True)
    kept = [path for path in (origin / ".git").rglob("*") if path.is_file()]
    files = {f"/r/{path.relative_to(origin / '.git')}": path.read_bytes() for path in kept}
    with site(files) as there:
        seen = ran(work, box_for(there), f"git clone -q {there.url}/r copy && git -C copy log --format=%s", [THERE])
        assert seen.ok and seen.text == f"the first\n\n[network: reached {THERE}]", seen.text


@needs("pip3")
def test_pip_installs(tmp_path: Path) -> None:
    name = "tiny-1.0-py3-none-any.whl"
    with site({"/simple/tiny/": f'<a href="/{name}">{name}</a>'.encode(), f"/{name}": wheel()}) as there:
        index = f"--index-url {there.url}/simple --trusted-host {THERE} --disable-pip-version-check"
        use = "PYTHONPATH=here python3 -c 'import tiny; print(tiny.answer)'"
        install = f"python3 -m pip install -q --target here {index} tiny && {use}"
        seen = ran(tmp_path, box_for(there), install, True)
        assert seen.ok and "42\n" in seen.text, seen.text


@needs("npm", "node")
def test_npm_installs(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in (
            ("package.json", '{"name": "tiny", "version": "1.0.0"}'),
            ("index.js", "module.exports = 42"),
        ):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    with site({"/tiny.tgz": packed.getvalue()}) as there:
        dist = {"tarball": f"{there.url}/tiny.tgz", "shasum": hashlib.sha1(packed.getvalue()).hexdigest()}
        one = {"name": "tiny", "version": "1.0.0", "dist": dist}
        listed = {"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": one}}
        there.pages["/tiny"] = json.dumps(listed).encode()
        install = f"npm install --no-audit --no-fund --registry {there.url}/ tiny && node -p 'require(\"tiny\")'"
        seen = ran(tmp_path, box_for(there), install, True)
        assert seen.ok and "42\n" in seen.text, seen.text


@needs("ssh")
def test_ssh_goes_through_the_proxy(tmp_path: Path) -> None:
    with socket.create_server((THERE, 0)) as listening:
        port = listening.getsockname()[1]

        def greet() -> None:
            connection, _ = listening.accept()
            connection.sendall(b"no ssh here\r\n" * 2)
            connection.close()

        thread = Thread(target=greet, daemon=True)
        thread.start()
        box = find_sandbox(levels=["bubblewrap"], private_hosts=[f"{THERE}:{port}"])
        assert isinstance(box, Bubblewrap)
        seen = ran(tmp_path, box, f"ssh -p {port} -o BatchMode=yes a@{THERE}", True)
        assert not seen.ok and f"[network: reached {THERE}]" in seen.text, seen.text
        thread.join(10)
        refused = ran(tmp_path, box, "ssh -p 2222 -o BatchMode=yes a@127.0.0.1", True)
        assert "127.0.0.1 was refused: it is not on the public internet" in refused.text


# A proxy's life.


def proxies(marker: str) -> list[int]:
    """The process ids of the proxies whose rules have the marker in them."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and marker.encode() in (entry / "cmdline").read_bytes().split(b"bwrap")[0]:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("ends", ["by itself", "in time", "cancelled"])
def test_no_proxy_is_left(tmp_path: Path, ends: str) -> None:
    marker = f"h{os.urandom(8).hex()}.example"
    [bash] = [one for one in TOOLS if one.name == "bash"]
    command = "echo begun; " + ("true" if ends == "by itself" else "exec sleep 1000")

    async def main() -> int:
        context = Context(tmp_path, 1.0 if ends == "in time" else 90, box_for())
        seen = 0
        async with asyncio.timeout(60), aclosing(bash.run({"command": command, "network": [marker]}, context)) as news:
            async for one in news:
                seen = max(seen, len(proxies(marker)))
                if isinstance(one, Progress) and one.tail and ends == "cancelled":
                    break
        return seen

    assert asyncio.run(main()) <= 1
    for pid in proxies(marker):
        handle = os.pidfd_open(pid)
        assert select.select([handle], [], [], 10)[0]
        os.close(handle)
    assert proxies(marker) == []


@pytest.mark.anyio
async def test_a_job_keeps_its_network_when_the_server_is_started_again(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with site({"/": b"a page"}) as there:
        command = f"curl -sS {there.url}/; echo first; until [ -e go ]; do sleep 0.05; done; curl -sS {there.url}/"
        async with opened(tmp_path) as jobs:
            job = await jobs.start(
                command,
                session=SESSION,
                principal=ANN,
                sandbox=box_for(there),
                workspace=tmp_path / "work",
                network=[THERE],
            )
            await until(jobs, job.id, lambda glance: any("first" in line for line in glance.tail))
        async with opened(tmp_path) as jobs:
            (tmp_path / "work" / "go").touch()
            glance = await end_of(jobs, job.id)
            assert glance.job.exit_code == 0 and glance.tail[-1] == f"[network: reached {THERE}]", glance
            assert there.asked == ["/", "/"]
