"""Checks of this Python, its libraries and the machine."""

from __future__ import annotations

import importlib.util
import locale
import os
import re
import resource
import sys
import time
from importlib.metadata import PackageNotFoundError, distribution, metadata, version

import psutil

from app.core.settings_fields import is_url
from app.models.embedded.supervisor import ENGINE, INSTALL, SMOLLM2
from app.storage.database import DATABASE
from app.storage.inspection.database_file import library
from routes.access.connection_limits import RESERVE
from routes.cli.doctor.finding import Findings, Subject, megabytes, ok, problem, skipped, warning

PACKAGE = "dragoman"
OLDEST_PYTHON = (3, 11)
OLDEST_SQLITE = (3, 37)
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
FEW_BYTES = 512 << 20  # of memory: less is not enough for a server, its tools and a small model
AHEAD_S = 300  # a file so far in the future says that the clock was put back
BUILT = 1_767_225_600  # 2026-01-01: no clock that is right shows less
UPGRADE = "Upgrade it: pip install --upgrade dragoman, in the environment that runs the server."

_BOUND = re.compile(r"([<>]=?|==|!=|~=)\s*([\w.*]+)")
_EXTRA = re.compile(r"""extra\s*==\s*["']([\w-]+)["']""")


def python(_: Subject) -> Findings:
    """The version of Python and of dragoman."""
    found = f"Python {sys.version.split()[0]} ({sys.executable}), dragoman {version(PACKAGE)}"
    if sys.version_info < OLDEST_PYTHON:
        return problem(found, f"Run it with Python {'.'.join(map(str, OLDEST_PYTHON))} or later.")
    return ok(found)


def libraries(_: Subject) -> Findings:
    """Each library in a version that the package asks for, and the extras that are there."""
    needed, extras = _requirements()
    wrong = [complaint for line in needed if (complaint := _objection(line))]
    if wrong:
        return [problem(one, UPGRADE) for one in wrong]
    installed = {name: not any(map(_objection, lines)) for name, lines in extras.items()}
    about = ", ".join(f"{name} {'installed' if there else 'not installed'}" for name, there in installed.items())
    return ok(f"{len(needed)} libraries in compatible versions; extras: {about}")


def _requirements() -> tuple[list[str], dict[str, list[str]]]:
    """The requirements of the package, and those of each of its extras."""
    needed: list[str] = []
    extras: dict[str, list[str]] = {name: [] for name in metadata(PACKAGE).get_all("Provides-Extra") or ()}
    for line in distribution(PACKAGE).requires or ():
        wanted, _, marker = line.partition(";")
        if found := _EXTRA.search(marker):
            extras.setdefault(found[1], []).append(wanted.strip())
        elif "win32" not in marker or sys.platform != "win32":
            needed.append(wanted.strip())
    return needed, extras


def _objection(requirement: str) -> str:
    """Return what is wrong with the installed version; empty if nothing."""
    name = re.split(r"[\s<>=!~\[(]", requirement, maxsplit=1)[0]
    try:
        there = version(name)
    except PackageNotFoundError:
        return f"{name} is not installed"
    fits = all(_fits(there, relation, bound) for relation, bound in _BOUND.findall(requirement))
    return "" if fits else f"{name} {there} is installed, and {requirement} is needed"


def _fits(there: str, relation: str, bound: str) -> bool:
    mine, wanted = _numbers(there), _numbers(bound)
    match relation:
        case ">=" | "~=":
            return mine >= wanted
        case "<":
            return mine < wanted
        case "==":
            return mine[: len(wanted)] == wanted
    return True


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text.split("+")[0])[:3])


def sqlite(_: Subject) -> Findings:
    """The database library of this Python, and its search of texts."""
    there = library()
    if _numbers(there.version) < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        return problem(f"SQLite {there.version}", f"Use a Python whose SQLite is {wanted} or later.")
    if there.full_text:
        advice = "Use a Python whose SQLite has FTS5; those of Debian, python.org and uv have it."
        return problem(f"SQLite {there.version} cannot search texts: {there.full_text}", advice)
    return ok(f"SQLite {there.version} with FTS5")


def embedded_model(subject: Subject) -> Findings:
    """The engine and the weights of the model that answers where no other is configured."""
    missing = [name for name in (ENGINE, SMOLLM2.package) if importlib.util.find_spec(name) is None]
    configured = subject.settings.model_url or subject.settings.endpoints or subject.stored.endpoints
    if not missing:
        return ok(f"{SMOLLM2.name} can be run by {ENGINE}")
    found = f"{' and '.join(missing)} not installed"
    if configured and not (subject.settings.model_url or "").startswith("embedded:"):
        return skipped(f"{found}; another model is configured")
    return warning(found, f"Install it ({INSTALL}), or configure a model server with DRAGOMAN_MODEL_URL.")


def memory(_: Subject) -> Findings:
    """Memory that is available now."""
    there = psutil.virtual_memory()
    found = f"{megabytes(there.available)} of {megabytes(there.total)} available"
    if there.available < FEW_BYTES:
        return warning(found, "Add memory or stop other programs: commands and models may be killed.")
    return ok(found)


def open_files(subject: Subject) -> Findings:
    """The limit of open files, which the server raises to its hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = subject.settings.max_connections + RESERVE
    if hard == resource.RLIM_INFINITY or hard >= wanted:
        return ok(f"{'unlimited' if hard == resource.RLIM_INFINITY else f'{hard:,}'} open files, {wanted:,} needed")
    found = f"at most {hard:,} open files, {wanted:,} needed for max_connections"
    advice = f"Raise it (ulimit -Hn, LimitNOFILE= in systemd), or set DRAGOMAN_MAX_CONNECTIONS to {hard // 2}."
    return warning(found, advice)


def language(subject: Subject) -> Findings:
    """The encoding of names of files and of the terminal."""
    names, texts = sys.getfilesystemencoding(), locale.getpreferredencoding(False)
    variables = [
        f"{name}={subject.environ[name]}" for name in ("LC_ALL", "LC_CTYPE", "LANG") if name in subject.environ
    ]
    found = f"names of files {names}, texts {texts} ({', '.join(variables) or 'no LANG'})"
    if {one.lower().replace("-", "") for one in (names, texts)} != {"utf8"}:
        return warning(found, "Set LANG=C.UTF-8 where the server is started, or names of files may be unreadable.")
    return ok(found)


def proxies(subject: Subject) -> Findings:
    """Proxies of the environment, which requests to models and the web go through."""
    environ = subject.environ
    if "FORWARDED_ALLOW_IPS" in environ:
        advice = "Unset it, and name the proxies in DRAGOMAN_TRUSTED_PROXIES."
        return problem("FORWARDED_ALLOW_IPS is set: the server does not start", advice)
    there = {name: environ.get(name) or environ.get(name.lower()) for name in PROXIES}
    given = {name: value for name, value in there.items() if value}
    wrong = [name for name, value in given.items() if name != "NO_PROXY" and not is_url(value, PROXY_SCHEMES)]
    if wrong:
        advice = "Write it as http://HOST:PORT, or unset it."
        return [problem(f"{name} is not the URL of a proxy", advice) for name in wrong]
    if "NO_PROXY" not in given and given:
        advice = "Set NO_PROXY=localhost,127.0.0.1,::1, or requests to local models may go through the proxy."
        return warning(f"{', '.join(given)} set, NO_PROXY not", advice)
    return ok(f"{', '.join(given)} set" if given else "none set")


def clock(subject: Subject) -> Findings:
    """The clock against the time of the newest file of the data, which lies in the past if both are right."""
    now = time.time()
    shown = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(now))
    advice = "Set the clock, and keep it right with NTP (timedatectl set-ntp true)."
    if now < BUILT:
        return problem(f"it is {shown} here, which has passed", advice)
    files = subject.settings.data_dir.glob(f"{DATABASE}*")
    ahead = max((path.stat().st_mtime - now for path in files), default=0.0)
    if ahead > AHEAD_S:
        return warning(f"it is {shown} here, and the database was changed {ahead:,.0f} s later", advice)
    return ok(f"it is {shown} here")


def account(_: Subject) -> Findings:
    """The account that would run the server."""
    found = f"user id {os.geteuid()}"
    if os.geteuid() == 0:
        advice = "Run the server as an account of its own: with root's rights, a mistake reaches everything."
        return warning(f"{found}, which is root", advice)
    return ok(found)
