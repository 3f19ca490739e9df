"""Sources of settings: flags, the environment and a TOML file, each read into name -> Given."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from msgspec import Struct

from tools.base.patterns import lazy_pattern

PREFIX = "DRAGOMAN_"
DEFAULT_FILE = "dragoman.toml"
MAX_FILE_BYTES = 1 << 20

# Read elsewhere: the path of the file, and the variables of the terminal client.
OTHER_VARIABLES = ("DRAGOMAN_CONFIG", "DRAGOMAN_TOKEN", "DRAGOMAN_URL")
# Kubernetes sets these variables, and DRAGOMAN_PORT=tcp://..., in every pod for a service called dragoman:
# https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables
KUBERNETES = lazy_pattern(r"DRAGOMAN_SERVICE_(HOST|PORT.*)|DRAGOMAN_PORT_\d+_(TCP|UDP).*")


class SettingsError(Exception):
    """Settings that cannot be used. `problems` has a sentence for each problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Given(Struct, frozen=True):
    """A value as it was written, its source, and the folder that a relative path is relative to."""

    value: object
    origin: str
    folder: Path


def in_flags(flags: Mapping[str, object], names: Sequence[str], folder: Path) -> dict[str, Given]:
    """The flags that were given, which are not None."""
    return {
        name: Given(flags[name], f"flag --{name.replace('_', '-')}", folder)
        for name in names
        if flags.get(name) is not None
    }


def in_environment(
    environ: Mapping[str, str], names: Sequence[str], word_lists: Collection[str], folder: Path, problems: list[str]
) -> dict[str, Given]:
    """The `DRAGOMAN_*` variables.

    An empty one counts as not set, as in compose files, except for settings that are lists of words: there it is the
    empty list, which allows nothing.
    """
    known = {PREFIX + name.upper(): name for name in names}
    given: dict[str, Given] = {}
    for variable, value in environ.items():
        if not variable.startswith(PREFIX) or _from_kubernetes(variable, value):
            continue
        if not value and known.get(variable) not in word_lists:
            continue
        if variable in known:
            given[known[variable]] = Given(value, f"environment {variable}", folder)
        elif variable not in OTHER_VARIABLES:
            problems.append(_unknown("environment variable", variable, [*known, *OTHER_VARIABLES]))
    return given


def in_file(
    flag: object, environ: Mapping[str, str], names: Sequence[str], folder: Path, problems: list[str]
) -> tuple[Path | None, dict[str, Given]]:
    """The settings file, if there is one, and its settings."""
    named = flag or environ.get("DRAGOMAN_CONFIG")
    path = folder / str(named or DEFAULT_FILE)
    if not named and not path.exists():
        return None, {}
    table = _table(path, problems)
    problems.extend(_unknown("key", name, names, f" in {path}") for name in table if name not in names)
    return path, {name: Given(table[name], f"file {path}", path.parent) for name in names if name in table}


def home_of(environ: Mapping[str, str]) -> Path | None:
    """The home folder, or None where there is none (a container's user without a name)."""
    if environ.get("HOME"):
        return Path(environ["HOME"])
    try:
        return Path.home()
    except RuntimeError:
        return None


def current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise SettingsError(["The current folder does not exist any more. Change to one that exists."]) from None


def default_data_dir(environ: Mapping[str, str], home: Path | None) -> Path | None:
    base = environ.get("XDG_DATA_HOME", "")
    if base.startswith(
        "/"
    ):  # relative ones are to be ignored: https://specifications.freedesktop.org/basedir-spec/latest/
        return Path(base, "dragoman")
    return home / ".local" / "share" / "dragoman" if home else None


def absolute(given: Given, home: Path | None) -> object:
    if not isinstance(given.value, str | Path) or not str(given.value):
        return given.value
    written = str(given.value)
    if home and (written == "~" or written.startswith("~/")):
        return str(home / written[2:])
    return str(given.folder / written)


def _table(path: Path, problems: list[str]) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            written = file.read(MAX_FILE_BYTES + 1)
        if len(written) > MAX_FILE_BYTES:
            problems.append(f"{path} is larger than {MAX_FILE_BYTES} bytes: it cannot be a settings file.")
            return {}
        return tomllib.loads(written.decode())
    except OSError as error:
        problems.append(f"{path} cannot be read: {error.strerror}. Name another file with --config or DRAGOMAN_CONFIG.")
    except UnicodeDecodeError as error:
        line = written.count(b"\n", 0, error.start) + 1
        problems.append(f"{path} is not UTF-8 (at line {line}). Save it as UTF-8.")
    except tomllib.TOMLDecodeError as error:
        problems.append(f"{path} is not valid TOML: {error}. Correct that line.")
    except RecursionError:
        problems.append(f"{path} is nested too deeply. Settings are plain `name = value` lines.")
    return {}


def _from_kubernetes(variable: str, value: str) -> bool:
    if variable == "DRAGOMAN_PORT":
        return value.startswith(("tcp://", "udp://"))
    return KUBERNETES.fullmatch(variable) is not None


def _unknown(kind: str, name: str, known: Sequence[str], where: str = "") -> str:
    # Hyphens and case are the usual mistakes; the common prefix would make all names similar.
    plain = {one.lower().removeprefix(PREFIX.lower()): one for one in known}
    normalised = name.lower().replace("-", "_").removeprefix(PREFIX.lower())
    near = get_close_matches(normalised, plain, n=1, cutoff=0.6)
    hint = f"Did you mean {plain[near[0]]}?" if near else "`dragoman serve --help` lists the settings."
    return f"There is no {kind} {ascii(name)[1:-1]}{where}. {hint}"
