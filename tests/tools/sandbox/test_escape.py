"""The escape corpus at every level of this machine, as its own user and as another; the table says what is open."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest

from tests.support.nightly import at_night
from tests.support.sandbox import escape_forms as forms
from tests.support.sandbox.accounts import NOBODY, launched, python_of_nobody
from tests.support.sandbox.escapes import ATTACKS, HARMLESS, attacks

LEVELS = ("bubblewrap", "landlock", "landlock-old")
USERS = ("own", "nobody")
# By day each level once, and each user. An older Landlock is the newer one that cannot refuse signals.
SIEGES = at_night(
    tuple(product(LEVELS, USERS)), (("bubblewrap", "own"), ("landlock", "own"), ("landlock-old", "nobody"))
)


@dataclass(frozen=True, slots=True)
class Siege:
    """What all attacks did to one server, and the circumstances of it."""

    said: dict[str, Any]
    outcomes: dict[str, tuple[list[str], str]]
    circumstances: set[str]


def siege(level: str, user: str) -> Siege | str:
    """Every attack on one server; or why there is none."""
    return sieges(level)[user]


@cache
def sieges(level: str) -> dict[str, Siege | str]:
    """As each user, at the same time: that saves a third. One level only, because some limits count per user."""
    python_of_nobody()
    users = [user for other, user in SIEGES if other == level] or USERS[:1]
    with ThreadPoolExecutor() as pool:
        return dict(zip(users, pool.map(lambda user: besieged(level, user), users), strict=True))


def besieged(level: str, user: str) -> Siege | str:
    uid = os.getuid() if user == "own" else NOBODY
    python = sys.executable if user == "own" else python_of_nobody()
    if not python:
        return "only root can be nobody, where a Python with the libraries is open to all"
    with TemporaryDirectory(dir="/tmp") as folder:
        place = Path(folder) / "place"
        place.mkdir()
        if user != "own":
            Path(folder).chmod(0o711)
            os.chown(place, uid, uid)
        secret = f"the-canary-{uuid4().hex}"
        run = launched([python, "-m", "tests.support.sandbox.escape_server", level, str(place), secret], uid, secret)
    assert run.returncode == 0, run.stderr
    said, *outcomes = map(json.loads, run.stdout.splitlines())
    if "off" in said:
        return str(said["off"])
    assert [one["name"] for one in outcomes] == [attack.name for attack in attacks(level)]
    return Siege(said, {one["name"]: (one["harms"], one["text"]) for one in outcomes}, circumstances(level, uid, said))


def circumstances(level: str, uid: int, said: dict[str, Any]) -> set[str]:
    landlock = level.startswith("landlock")
    met = {
        forms.ALWAYS: True,
        forms.LANDLOCK: landlock,
        forms.OLD_LANDLOCK: said["old"],
        forms.ROOT: uid == 0,
        forms.NO_PIDS_GROUP_AS_ROOT: not said["pids"] and uid == 0,
        forms.NO_PIDS_GROUP_IN_LANDLOCK: not said["pids"] and landlock,
        forms.NO_MEMORY_GROUP: not said["memory"],
    }
    return {name for name, true in met.items() if true}


@pytest.mark.parametrize(("level", "user"), SIEGES)
def test_no_attack_does_what_the_table_does_not_say(level: str, user: str) -> None:
    found = siege(level, user)
    if isinstance(found, str):
        pytest.skip(found)
    wrong = []
    for attack in attacks(level):
        harms, text = found.outcomes[attack.name]
        if bool(harms) != bool(attack.open.keys() & found.circumstances):
            wrong.append(f"{attack.name}: {harms or 'it is closed, but the table says it is open'}\n{text}")
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize(("level", "user"), SIEGES)
def test_only_what_keeps_everything_inside_is_boxed(level: str, user: str) -> None:
    found = siege(level, user)
    if isinstance(found, str):
        pytest.skip(found)
    assert found.said["boxed"] == (level == "bubblewrap")
    if level == "landlock":  # modes and times outside of the workspace can be changed, so commands ask
        assert found.outcomes["modes outside"][0] and found.outcomes["times outside"][0]


def test_every_reason_is_for_a_circumstance_and_every_attack_has_a_name_of_its_own() -> None:
    known = {value for name, value in vars(forms).items() if name.isupper() and isinstance(value, str)}
    assert all(attack.open.keys() <= known for attack in ATTACKS)
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 80


def test_without_a_sandbox_the_attacks_work() -> None:
    """The attacks are worth something: where nothing stops them, the harmless ones get what they want."""
    found = siege("none", "own")
    assert isinstance(found, Siege) and found.outcomes.keys() == HARMLESS
    assert [name for name, (harms, _) in found.outcomes.items() if not harms] == []
