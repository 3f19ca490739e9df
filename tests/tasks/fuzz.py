"""Send hostile bytes to a real server: `python -m tests.tasks.fuzz DOOR SECONDS SEED`, or the files of earlier cases.

DOOR is a row of tests/support/fuzz/doors.py, or `all` for each in turn. What is wrong is kept in .cache/fuzz, made
smaller where that goes quickly; `python -m tests.tasks.fuzz .cache/fuzz/FILE ...` sends it again.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from tests import ROOT
from tests.support.fuzz.doors import DOORS, case_of
from tests.support.fuzz.judging import Case, Door, Verdict, judged, minimised
from tests.support.fuzz.site import Site, site

KEPT = ROOT / ".cache" / "fuzz"
WORST = 5


async def hunt(door: Door, seconds: float, seed: int) -> bool:
    """Try seeds from this one on until the time is over, a new server where one has ended; whether all went well."""
    began, number, verdicts = time.monotonic(), seed, list[tuple[Verdict, Case, int]]()
    known = set[str]()
    while time.monotonic() - began < seconds:
        async with site() as made:
            while made.lives and time.monotonic() - began < seconds:
                case = case_of(door, number)
                verdict = await judged(made, door, case)
                verdicts.append((verdict, case, number))
                if verdict.is_bad and verdict.cause not in known:
                    known.add(verdict.cause)
                    case = await smaller(made, door, case, verdict)
                    keep(case, number)
                    print(line(door, number, verdict, case), flush=True)
                number += 1
                if verdict.wrong:
                    break
    bad = [one for one in verdicts if one[0].is_bad]
    worst = sorted(verdicts, key=lambda one: -one[0].cpu_ms)[:WORST]
    print(f"{door.name}: {len(verdicts)} cases in {time.monotonic() - began:.0f} s, {len(bad)} bad; the worst:")
    for verdict, case, at in worst:
        print("   ", line(door, at, verdict, case))
    return not bad


async def smaller(made: Site, door: Door, case: Case, verdict: Verdict) -> Case:
    return await minimised(made, door, case, verdict) if made.lives and not verdict.wrong else case


def line(door: Door, seed: int, verdict: Verdict, case: Case) -> str:
    sizes = f"{len(case.body) >> 10} KB, +{verdict.grown >> 20} MB"
    figures = f"{door.name}/{seed}: {verdict.cpu_ms:.0f} ms CPU, waited {verdict.wait_ms:.0f} ms, {sizes}, {case.how}"
    return f"{figures} {verdict.wrong} {verdict.where}"


def keep(case: Case, seed: int) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    case.write(KEPT / f"{case.door}-{seed}")


async def again(paths: list[Path]) -> bool:
    """Send kept cases."""
    well = True
    for path in paths:
        case = Case.read(path)
        door = DOORS[case.door]
        async with site() as made:
            verdict = await judged(made, door, case)
        well &= not verdict.is_bad
        print(path.name, line(door, 0, verdict, case))
        print(verdict.log[-3_000:])
    return well


def main(words: list[str]) -> int:
    if words and Path(words[0]).is_file():
        return 0 if asyncio.run(again([*map(Path, words)])) else 1
    if len(words) != 3 or words[0] not in (*DOORS, "all"):
        print(f"{__doc__}\nDoors: {', '.join(DOORS)}")
        return 2
    chosen = [*DOORS.values()] if words[0] == "all" else [DOORS[words[0]]]
    well = [asyncio.run(hunt(door, float(words[1]), int(words[2]))) for door in chosen]
    return 0 if all(well) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
