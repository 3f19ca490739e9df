"""Real programs in a real box use a secret that they never see, and no way out of the box leads to it."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.sandbox.jobs import ANN, SESSION, end_of, opened, until
from tests.support.sandbox.private_site import MARK, PATTERN, VALUE, PrivateSite, private_site
from tests.support.sandbox.sites import THERE, site
from tests.support.sandbox.wheels import needs, wheel
from tools.base.outcome import Progress, Result
from tools.catalogue import TOOLS
from tools.sandbox.network.secrets import BoxSecret
from tools.sandbox.sandbox import (
    Bubblewrap,
    Landlock,
    NoSandbox,
    Sandbox,
    Unboxed,
    find_sandbox,
    secrets_refusal,
)
from tools.tool import Context

FOUND = find_sandbox(levels=["bubblewrap"])
pytestmark = pytest.mark.skipif(isinstance(FOUND, NoSandbox), reason=getattr(FOUND, "reason", ""))


@contextmanager
def private(folder: Path, *, tls: bool = True) -> Iterator[tuple[PrivateSite, Bubblewrap]]:
    with private_site(folder, tls=tls) as there:
        box = find_sandbox(levels=["bubblewrap"], private_hosts=[THERE], authorities=[there.authority])
        assert isinstance(box, Bubblewrap)
        yield there, box


def ran(
    folder: Path,
    box: Sandbox,
    command: str,
    secrets: Sequence[BoxSecret],
    *,
    tool: str = "bash",
    network: object = True,
    time_limit_s: float = 90,
) -> Result:
    """The result of a call, through the same door as a model's."""
    [row] = [one for one in TOOLS if one.name == tool]
    named = {"bash": "command", "python": "code"}[tool]
    arguments = row.normalise({named: command, **({} if network is None else {"network": network})})
    (folder / "work").mkdir(exist_ok=True)

    async def main() -> Result:
        async with asyncio.timeout(100):
            context = Context(folder / "work", time_limit_s, box, secrets=secrets)
            async with aclosing(row.run(arguments, context)) as news:
                *_, last = [seen async for seen in news]
        assert isinstance(last, Result)
        return last

    result = asyncio.run(main())
    assert VALUE not in result.text
    return result


@needs("git")
@pytest.mark.parametrize("size", [10, 2_000_000])
def test_git_pushes_and_clones(tmp_path: Path, size: int) -> None:
    with private(tmp_path) as (there, box):
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(there.repositories / "r.git")], check=True)
        subprocess.run(
            ["git", "-C", str(there.repositories / "r.git"), "config", "http.receivepack", "true"], check=True
        )
        url = f"https://x-access-token:$TOKEN@{there.host}/git/r.git"
        push = (
            f"git init -q -b main r && cd r && head -c {size} /dev/urandom > f && git add f && git commit -qm first && "
            f"git push -q {url} main && cd .. && git clone -q {url} copy && "
            "cmp r/f copy/f && git -C copy log --format=%s"
        )
        seen = ran(tmp_path, box, push, [there.secret()], network=[there.host])
        assert seen.ok and "first\n" in seen.text and f"reached {THERE}" in seen.text, seen.text
        assert MARK not in "".join(there.seen)
        log = ["git", "-C", str(there.repositories / "r.git"), "log", "--format=%s", "main"]
        assert subprocess.run(log, check=True, capture_output=True, text=True).stdout == "first\n"
        narrow = there.secret(paths=("GET /git/r.git/**", "POST /git/r.git/git-upload-pack"))
        refused = ran(tmp_path, box, f"cd r && git commit -q --allow-empty -m 2 && git push -q {url} main", [narrow])
        assert not refused.ok and "the secret git is for GET /git/r.git/**" in refused.text, refused.text


@needs("pip3")
def test_pip_installs_from_a_private_index(tmp_path: Path) -> None:
    name = "tiny-1.0-py3-none-any.whl"
    with private(tmp_path) as (there, box):
        there.pages = {"/simple/tiny/": f'<a href="/{name}">{name}</a>'.encode(), f"/{name}": wheel()}
        index = f"--index-url https://__token__:$TOKEN@{there.host}/simple --disable-pip-version-check"
        use = "PYTHONPATH=here python3 -c 'import tiny; print(tiny.answer)'"
        seen = ran(tmp_path, box, f"python3 -m pip install -q --target here {index} tiny && {use}", [there.secret()])
        assert seen.ok and "42\n" in seen.text, seen.text


@needs("npm", "node")
def test_npm_installs_from_a_private_registry_by_http(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in (("package.json", '{"name": "tiny", "version": "1.0.0"}'), ("index.js", "module.exports=42")):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    with private(tmp_path, tls=False) as (there, box):  # by http, as the secret says
        dist = {"tarball": f"{there.url}/tiny.tgz", "shasum": hashlib.sha1(packed.getvalue()).hexdigest()}
        one = {"name": "tiny", "version": "1.0.0", "dist": dist}
        listed = {"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": one}}
        there.pages = {"/tiny": json.dumps(listed).encode(), "/tiny.tgz": packed.getvalue()}
        install = (
            f"echo '//{there.host}/:_authToken=${{TOKEN}}' > .npmrc; "
            f"npm install --no-audit --no-fund --registry {there.url}/ tiny && node -p 'require(\"tiny\")'"
        )
        seen = ran(tmp_path, box, install, [there.secret()])
        assert seen.ok and "42\n" in seen.text, seen.text


@needs("curl", "wget")
def test_programs_trust_the_proxy_and_other_hosts_as_before(tmp_path: Path) -> None:
    with private(tmp_path) as (there, box), site({"/": b"a page"}) as other:
        header = '-H "Authorization: Bearer $TOKEN"'
        fetches = (
            f"curl -sS --fail {header} {there.url}/echo",
            f"env -u CURL_CA_BUNDLE -u SSL_CERT_FILE curl -sS --fail {header} {there.url}/echo",
            f'wget -q -O- --header "Authorization: Bearer $TOKEN" {there.url}/echo',
            f"curl -sS --fail -u me:$TOKEN {there.url}/echo",
        )
        for fetch in fetches:
            seen = ran(tmp_path, box, fetch, [there.secret()])
            assert seen.ok and "Accept-Encoding" in seen.text, seen.text
        code = (
            "import os, urllib.request as u\n"
            f"r = u.Request('{there.url}/echo', headers={{'Authorization': 'token ' + os.environ['TOKEN']}})\n"
            "print(u.urlopen(r).read().decode())"
        )
        assert MARK in ran(tmp_path, box, code, [there.secret()], tool="python").text
        plain = ran(tmp_path, box, f'curl -sS -H "X: $TOKEN" {other.url}/', [there.secret()])
        assert plain.text.startswith("a page")


def test_without_network_or_without_a_secret_there_is_neither_placeholder_nor_authority(tmp_path: Path) -> None:
    look = "env | grep -c -e TOKEN -e CERT; ls /run"
    with private(tmp_path) as (there, box):
        for secrets, network in (([], True), ([there.secret()], None)):
            assert ran(tmp_path, box, look, secrets, network=network).text.startswith("0\n")
        refused = ran(
            tmp_path,
            box,
            f'curl -sS --fail -H "Authorization: Bearer $TOKEN" {there.url}/echo',
            [there.secret()],
            network=["example.org"],
        )
        assert not refused.ok and "not among the hosts allowed for this call" in refused.text and there.seen == []


def test_a_secret_takes_no_variable_of_the_boxs_own(tmp_path: Path) -> None:
    with private(tmp_path) as (there, box):
        secrets = [there.secret(variable=name) for name in ("PATH", "HOME", "HTTPS_PROXY", "GIT_CONFIG_COUNT")]
        assert MARK not in ran(tmp_path, box, "env", secrets).text


def test_other_sandboxes_refuse_in_words(tmp_path: Path) -> None:
    secret = BoxSecret(name="a", variable="A", placeholder=MARK, value=VALUE, hosts=("a.example",))
    levels = [find_sandbox(levels=["landlock"]), find_sandbox(unsafe=True)]
    for level in levels:
        if isinstance(level, Landlock | Unboxed):
            assert "bubblewrap" in secrets_refusal(level)
            for network in (True, None):
                seen = ran(tmp_path, level, "echo ran", [secret], network=network)
                assert not seen.ok and "bubblewrap" in seen.text and "ran\n" not in seen.text
    assert isinstance(FOUND, Bubblewrap) and secrets_refusal(FOUND) == ""
    assert secrets_refusal(NoSandbox("why")) == "why"


# What is tried inside, each for itself; all of it must find nothing. `$TOKEN`, `$URL` and `$HOST` are there.
SEARCH = rf"""
import re, os, glob
def read(path):
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20)
    except OSError:
        return b""
names = ("environ", "cmdline", "mountinfo", "auxv")
texts = [read(path) for name in names for path in glob.glob(f"/proc/[0-9]*/{{name}}")]
for pid in glob.glob("/proc/[0-9]*"):
    for line in read(pid + "/maps").decode().splitlines():
        start, end = (int(one, 16) for one in line.split()[0].split("-"))
        try:
            with open(pid + "/mem", "rb") as memory:
                memory.seek(start)
                texts.append(memory.read(min(end - start, 1 << 22)))
        except (OSError, ValueError, OverflowError):
            pass
    for file in glob.glob(pid + "/fd/*"):
        if os.path.isfile(file):
            texts.append(read(file))
found = [one for text in texts for one in re.findall(rb"{PATTERN}", text)]
print("searched", len(texts) > 5, found)
"""
INSIDE = {
    "environment": "env; export -p; cat /proc/self/environ",
    "processes": "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; ls -l /proc/[0-9]*/fd",
    "memory": "python3 /tmp/search.py",
    "ptrace": 'python3 -c "import ctypes; print([ctypes.CDLL(None).ptrace(16, n, 0, 0) for n in range(1, 99)])"',
    "files of the box": f"grep -rEl -e '{PATTERN}' -e 'PRIVATE KEY' /run /tmp /dev/shm /etc /var 2>/dev/null",
    "key of the authority": "tail -25 $SSL_CERT_FILE; grep -c 'PRIVATE' $SSL_CERT_FILE",
    "a link in place of the authorities": "ln -sf /tmp/x $SSL_CERT_FILE; mv $SSL_CERT_FILE /tmp; echo >$SSL_CERT_FILE",
    "shared memory": "ls -la /dev/shm /dev/mqueue; ipcs -a",
    "abstract sockets": "cat /proc/net/unix",
    "the proxy's own page": "curl -sS http://127.0.0.1:61080/; curl -sS http://127.0.0.1:61080/notes",
    "the proxy as an HTTPS server": "curl -sSk -m 2 https://127.0.0.1:61080/",
    "the box's localhost": 'curl -sS -H "$BEARER" http://localhost:80/ https://localhost/',
    "another box's proxy": "for n in 1 2 3 4; do curl -sS -x http://127.0.0.$n:61080 https://$HOST/echo; done",
    "another port of the host": 'curl -sSk -H "$BEARER" https://127.0.0.2:1/',
    "plain http": 'curl -sS -H "$BEARER" http://$HOST/echo',
    "another name of the host": 'curl -sSk -H "$BEARER" https://127.0.0.3:${HOST#*:}/echo',
    "a listener of one's own": (
        "(timeout 5 python3 -m http.server 8443 >/tmp/log 2>&1 & sleep 0.5; "
        'curl -sS -m 3 --connect-to ::127.0.0.1:8443 -H "$BEARER" http://$HOST/echo; cat /tmp/log)'
    ),
    "a redirect": 'curl -sSL -D - --location-trusted -H "$BEARER" $URL/moved',
    "an echo": 'curl -sS -D - -H "$BEARER" $URL/echo',
    "a verbose echo": "curl -sSv -u me:$TOKEN $URL/echo 2>&1",
    "an echo of git": "GIT_TRACE_CURL=1 GIT_TRACE_REDACT=0 git ls-remote https://me:$TOKEN@$HOST/git/none 2>&1",
    "TLS keys": 'SSLKEYLOGFILE=/tmp/keys curl -sS -o /dev/null -H "$BEARER" $URL/echo; cat /tmp/keys',
    "a core": "ulimit -c unlimited; (kill -SEGV $BASHPID); cat core* /core*; cat /proc/sys/kernel/core_pattern",
    "an error": 'curl -sS -H "$BEARER" -H "Host: x" $URL/echo; curl -sS -X TRACE -u me:$TOKEN $URL/',
    "a long header": "curl -sS -H \"X: $(head -c 100000 /dev/zero | tr '\\0' x)$TOKEN\" $URL/echo",
    "the value of another call": f"curl -sS -H 'Authorization: Bearer {MARK[:-1]}x' $URL/echo",
    "the placeholder in the URL": "curl -sS $URL/echo?$TOKEN",
    "a name that is the host's address": 'curl -sSk --resolve a.example:443:127.0.0.2 -H "X: $TOKEN" https://a.example/',
    "the script of the proxy": "cat /run/network/*; ls -la /run/network; find / -name '*.sock' 2>/dev/null",
    "mounts": "cat /proc/self/mountinfo; cat /proc/mounts",
    "signals to all": "kill -USR1 1; kill -SEGV -1",
}


@needs("curl")
def test_no_way_out_of_the_box_leads_to_the_value(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    script = tmp_path / "work" / "search.py"
    script.write_text(SEARCH)
    tried = "\n".join(f"echo; echo {shlex.quote(f'=== {name}')}; (\n{what}\n) 2>&1" for name, what in INSIDE.items())
    with private(tmp_path) as (there, box):
        begin = (
            f"cp search.py /tmp; export URL={there.url} HOST={there.host} CONTROL=ghs_controlControl\n"
            'export BEARER="Authorization: Bearer $TOKEN"; exec >out 2>&1\n'
        )
        seen = ran(tmp_path, box, begin + tried, [there.secret()], network=[THERE, "a.example"])
        text = (tmp_path / "work" / "out").read_text(errors="replace")  # all of it, which no result is
        found = set(re.findall(PATTERN, text))
        assert found == {"ghs_controlControl"}, found  # so the search finds what is there
        parts = dict(re.findall(r"\n=== (.*)\n((?s:.*?))(?=\n=== |\Z)", text))
        assert set(parts) == {*INSIDE}, text
        assert "searched True" in parts["memory"] and MARK in parts["an echo"], parts["memory"]
        assert parts["key of the authority"].rstrip().endswith("\n0")
        assert (
            "PRIVATE KEY" not in text
            and "[network: reached" in seen.text
            and re.search("CLIENT_|^$", parts["TLS keys"])
        )
        # The host has got the value when the command used the secret as it is meant, and never otherwise.
        assert f"Bearer {VALUE}" in there.seen and not any(VALUE in one for one in there.requests)
    assert len(INSIDE) >= 30
    assert not list(Path("/").glob("core*"))


PROCESS_FILES = ("environ", "cmdline", "status", "stack", "mountinfo")


def test_no_process_of_the_machine_shows_it(tmp_path: Path) -> None:
    """In the proxy's own memory it is, of which there is no core, and which no other account may read."""
    [bash] = [one for one in TOOLS if one.name == "bash"]
    marker = f"h{os.urandom(8).hex()}.example"
    (tmp_path / "work").mkdir()

    async def main(secret: BoxSecret, box: Bubblewrap) -> tuple[str, list[str], list[Path]]:
        context = Context(tmp_path / "work", 60, box, secrets=[secret])
        arguments = {"command": "echo begun; exec sleep 1000", "network": [marker, THERE]}
        async with asyncio.timeout(60), aclosing(bash.run(arguments, context)) as news:
            async for one in news:
                if isinstance(one, Progress) and one.tail:
                    break
            return everything(), limits_of(marker), links_of(marker)
        raise AssertionError

    with private(tmp_path) as (there, box):
        shown, limits, links = asyncio.run(main(there.secret(), box))
        assert VALUE not in shown and marker in shown
        assert limits and all(re.search(r"Max core file size +0 +0 ", one) for one in limits)
        assert not [link for link in links if "memfd:handed" in str(link)]


def everything() -> str:
    """What the kernel shows of all processes but their memory."""
    texts = []
    for process in Path("/proc").glob("[0-9]*"):
        for name in PROCESS_FILES:
            try:
                texts.append((process / name).read_bytes().decode("latin-1"))
            except OSError:
                continue
    return "\n".join(texts)


def _proxies(marker: str) -> Iterator[Path]:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (process / "cmdline").read_bytes().split(b"bwrap")[0]:
                yield process
        except OSError:
            continue


def limits_of(marker: str) -> list[str]:
    return [(process / "limits").read_text() for process in _proxies(marker)]


def links_of(marker: str) -> list[Path]:
    return [file.readlink() for process in _proxies(marker) for file in (process / "fd").iterdir()]


def test_another_process_of_the_same_account_cannot_read_the_proxy(tmp_path: Path) -> None:
    """The kernel's own answer, for the part of `launch.py` that reads the secrets."""
    code = (
        "import os, ctypes, resource; from tools.sandbox.network import launch\n"
        "handed, trusted = os.memfd_create('a'), os.memfd_create('b')\n"
        'os.write(handed, b\'{"authorities": [], "certificate": "x"}\'); os.lseek(handed, 0, 0)\n'
        "kept = os.dup(handed)\n"
        "assert launch._taken(handed, trusted).startswith(b'{')\n"
        "print(ctypes.CDLL(None).prctl(3), resource.getrlimit(resource.RLIMIT_CORE), os.fstat(kept).st_size)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "0 (0, 0) 0\n"


def test_a_file_of_authorities_is_never_looked_for_in_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the command's proxy starts, and tools write."""
    with private(tmp_path) as (there, _):
        monkeypatch.chdir(tmp_path)
        box = find_sandbox(levels=["bubblewrap"], private_hosts=[THERE], authorities=[Path(there.authority.name)])
        assert isinstance(box, Bubblewrap)
        fetch = f"curl -sS --fail -u me:$TOKEN {there.url}/echo"
        assert MARK in ran(tmp_path, box, f"touch {there.authority.name}; {fetch} -H X:$TOKEN", [there.secret()]).text


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGTERM])
def test_a_command_that_is_ended_leaves_nothing(tmp_path: Path, number: int) -> None:
    with private(tmp_path) as (there, box):
        seen = ran(tmp_path, box, f"kill -{int(number)} $$; sleep 1000", [there.secret()], time_limit_s=1)
        assert not seen.ok
        overdue = ran(
            tmp_path, box, f"curl -sS -u me:$TOKEN {there.url}/echo; sleep 1000", [there.secret()], time_limit_s=2
        )
        assert "[stopped after 2 s" in overdue.text


@pytest.mark.anyio
async def test_a_job_keeps_its_secret_when_the_server_is_started_again(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with private(tmp_path) as (there, box):
        fetch = f'curl -sS --fail -H "Authorization: Bearer $TOKEN" {there.url}/echo'
        command = f"{fetch}; echo; echo first; until [ -e go ]; do sleep 0.05; done; {fetch}"
        async with opened(tmp_path) as jobs:
            job = await jobs.start(
                command,
                session=SESSION,
                principal=ANN,
                sandbox=box,
                workspace=tmp_path / "work",
                network=[THERE],
                secrets=[there.secret()],
            )
            await until(jobs, job.id, lambda glance: any("first" in line for line in glance.tail))
            kept = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
            assert VALUE.encode() not in kept and MARK.encode() in kept and b"PRIVATE KEY" not in kept
        async with opened(tmp_path) as jobs:
            (tmp_path / "work" / "go").touch()
            glance = await end_of(jobs, job.id)
            assert glance.job.exit_code == 0, glance
        assert there.seen == [f"Bearer {VALUE}"] * 2


def test_many_secrets_go_to_their_own_hosts(tmp_path: Path) -> None:
    with private(tmp_path) as (there, box):
        others: list[dict[str, Any]] = [
            {"name": f"other{n}", "variable": f"OTHER{n}", "placeholder": f"phs_{n:020}", "value": f"ghs_{n:020}"}
            for n in range(60)
        ]
        secrets = [there.secret(hosts=("a.example",), **fields) for fields in others]
        fetch = f'curl -sS --fail -H "Authorization: Bearer $TOKEN" -H "X: $OTHER7" {there.url}/echo'
        seen = ran(tmp_path, box, fetch, [*secrets, there.secret()])
        assert seen.ok and f"phs_{7:020}" in seen.text and f"ghs_{7:020}" not in seen.text
