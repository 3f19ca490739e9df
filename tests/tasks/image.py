"""`make image`: build docs/deploy/Dockerfile without a daemon, and try what it makes.

With buildah, as root. The base image is pulled; where no registry can be reached, debootstrap makes one like it from
Debian's packages. What pip is configured with on this machine (a mirror, a certificate) holds for the build, too.
"""

from __future__ import annotations

import configparser
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tests import ROOT
from tests.support.replicas.nginx import free_port

STORE = ROOT / ".cache" / "image"
DOCKERFILE = ROOT / "docs" / "deploy" / "Dockerfile"
BASE, RELEASE = "docker.io/library/debian:trixie-slim", "trixie"
OWN_BASE, IMAGE = "localhost/dragoman-base", "localhost/dragoman"
LIMIT_S, STEP_S, PULL_S = 1800, 120, 60
WITHOUT_RIGHTS = 10001


def missing() -> str | None:
    """Return why no image can be built here."""
    if os.geteuid():
        return "an image is built as root"
    programs = [name for name in ("buildah", "debootstrap") if shutil.which(name) is None]
    return f"there is no {' and no '.join(programs)} (apt-get install buildah debootstrap)" if programs else None


def buildah(*words: str, limit_s: float = STEP_S) -> str:
    """What it prints. Raises subprocess.CalledProcessError, with that in its `stderr`."""
    done = subprocess.run(
        _command(*words), capture_output=True, text=True, timeout=limit_s, check=True, stdin=subprocess.DEVNULL
    )
    return done.stdout.strip()


def _command(*words: str) -> list[str]:
    return ["buildah", "--root", str(STORE / "storage"), "--runroot", str(STORE / "run"), *words]


def build(extras: str = "postgres") -> int:
    """Build the image; return its bytes."""
    STORE.mkdir(parents=True, exist_ok=True)
    words = ("--isolation", "chroot", "--network", "host", "--format", "docker", "--layers", "--tag", IMAGE)
    arguments = ("--build-arg", f"BASE={base()}", "--build-arg", f"EXTRAS={extras}", "--file", str(DOCKERFILE))
    buildah("bud", *words, *arguments, *pip_mounts(), str(ROOT), limit_s=LIMIT_S)
    with container() as name:
        folder = buildah("mount", name)
        listed = subprocess.run(["du", "-sbx", folder], capture_output=True, text=True, check=True)
        return int(listed.stdout.split()[0])


def base() -> str:
    """The image to begin with."""
    with suppress(subprocess.CalledProcessError, subprocess.TimeoutExpired):
        buildah("inspect", "--type", "image", OWN_BASE)
        return OWN_BASE
    with suppress(subprocess.CalledProcessError, subprocess.TimeoutExpired):
        buildah("pull", BASE, limit_s=PULL_S)
        return BASE
    folder = STORE / "base"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["debootstrap", "--variant=minbase", RELEASE, str(folder)], timeout=LIMIT_S, check=True)
    container = buildah("from", "scratch")
    buildah("add", container, str(folder), "/", limit_s=LIMIT_S)
    buildah("commit", "--rm", container, OWN_BASE, limit_s=LIMIT_S)
    shutil.rmtree(folder)
    return OWN_BASE


def pip_mounts() -> list[str]:
    """Options that show the build what pip is configured with here: the settings, local indexes, the certificate."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    values = dict(line.replace("'", "").split("=", 1) for line in listed.stdout.splitlines())
    named = {name.rpartition(".")[2]: value for name, value in values.items()}
    kept = {
        name: value for name, value in named.items() if name in ("index-url", "extra-index-url", "find-links", "cert")
    }
    if not kept:
        return []
    paths = [one.removeprefix("file://") for value in kept.values() for one in value.split()]
    mounts = {str(Path(path).parent if path.endswith("/simple") else path) for path in paths if path.startswith("/")}
    folder = STORE / "pip"
    folder.mkdir(exist_ok=True)
    if certificate := kept.get("cert"):
        mounts.discard(certificate)  # the image makes that file itself
        shutil.copyfile(certificate, folder / "ca.crt")
        kept["cert"] = "/run/pip/ca.crt"
    written = configparser.ConfigParser(interpolation=None)
    written["global"] = kept
    with (folder / "pip.conf").open("w") as file:
        written.write(file)
    pairs = [f"{folder}:/run/pip:ro", f"{folder / 'pip.conf'}:/etc/pip.conf:ro", *(f"{one}:{one}:ro" for one in mounts)]
    return [word for pair in pairs for word in ("--volume", pair)]


@contextmanager
def container() -> Generator[str, None, None]:
    """A container of the image, which is removed in the end."""
    name = buildah("from", IMAGE)
    try:
        yield name
    finally:
        buildah("rm", name)


def run(name: str, *words: str, environ: Sequence[str] = ()) -> str:
    return buildah("run", *_options(environ), name, "--", *words)


def _options(environ: Sequence[str]) -> list[str]:
    return ["--isolation", "chroot", "--network", "host", *(word for one in environ for word in ("--env", one))]


def try_out() -> dict[str, Any]:
    """Start a server in a container, ask it and its health check, stop it; return what was found."""
    config = json.loads(buildah("inspect", "--type", "image", IMAGE))["Docker"]["config"]
    port = free_port()
    environ = [f"DRAGOMAN_PORT={port}", "DRAGOMAN_MODEL_URL=http://127.0.0.1:9/v1", "DRAGOMAN_MODEL=m"]
    with container() as name:
        found: dict[str, Any] = {"account": int(run(name, "id", "-u")), "version": run(name, "dragoman", "--version")}
        run(name, "dragoman", "token", "create", "--name", "me", "--role", "admin", environ=environ)
        words = _command("run", *_options(environ), name, "--", *config["Entrypoint"], *config["Cmd"])
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout
                found["line"] = server.stdout.readline().strip()
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=STEP_S) as answer:
                    found["ready"] = json.load(answer)
                run(name, *config["Healthcheck"]["Test"][1:], environ=environ)  # raises if it is not healthy
            finally:
                for process in psutil.Process(server.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        if "dragoman" in process.name():
                            process.terminate()
                found["exit_code"] = server.wait(STEP_S)
    return found


def main() -> int:
    if reason := missing():
        print(f"No image is built: {reason}.", file=sys.stderr)
        return 1
    begun = time.monotonic()
    try:
        size = build()
        found = try_out()
    except subprocess.CalledProcessError as error:
        print(error.stderr[-4000:], file=sys.stderr)
        return 1
    print(f"{IMAGE}: {size / 1e6:,.0f} MB in {time.monotonic() - begun:.0f} s. {json.dumps(found)}")
    return int(found["account"] != WITHOUT_RIGHTS or found["exit_code"] != 0)


if __name__ == "__main__":
    sys.exit(main())
