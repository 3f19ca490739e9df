"""What `POST /chat` costs, beside a bare byte relay in the same round: CPU, delivery, latency, memory, and their goals.

`python -m benchmarks.relay ROUNDS`: the median of so many rounds, 3 unless given, and their spread. `--rivals PYTHON`:
beside what other people use, which these Pythons have installed. `--checkout FOLDER`: beside another version of
dragoman, with the virtual environment there. `--flags "--setting value"`: beside dragoman with other settings.

- Servers are started anew for each round and warmed up with 20 short answers; then they take turns, load by load.
- A load is 300 (then 400) connections with an answer of 300 tokens each, 30 a second, started evenly over a second.
- CPU per token is that of the server's process from the first request until it is idle again, requests included.
- Delivered is what arrived while all streams were open, of what was due then.
- Latencies are of all tokens, from the upstream's write to the reader; a first token's is from the reader's request,
  which the upstream answers at once.
- Memory is the growth of the resident set from before the 300 streams to its highest, per stream.
- A request is for one token and on a connection of its own; 300 follow one another.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Measured, measure
from benchmarks.rows import ALL_DELIVERED, LOADS, Round, generators, report
from benchmarks.subjects import FLOOR, OURS, Subject, bare_relay, ours, rivals, servers

ROUNDS = 3


def measure_round(subjects: Sequence[Subject], loads: Sequence[str]) -> Round:
    """Load by load, each server at its turn: neighbours in time find the same machine."""
    got = dict[tuple[str, str], Measured]()
    with servers(subjects) as started:
        for load in loads:
            for name, server in started.items():
                saturated = "paced" in loads and load == "more" and got["paced", name].delivered < ALL_DELIVERED
                if not saturated or name in (FLOOR, OURS):  # what cannot serve 300 does not get 400
                    got[load, name] = measure(server, LOADS[load])
                    print(".", end="", file=sys.stderr, flush=True)
    return got


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.relay")
    parser.add_argument("rounds", type=int, nargs="?", default=ROUNDS)
    parser.add_argument("--rivals", nargs="+", type=lambda path: Path(path).absolute(), metavar="PYTHON", default=[])
    parser.add_argument("--checkout", action="append", type=lambda path: Path(path).absolute(), default=[])
    parser.add_argument("--flags", action="append", default=[])
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS))
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    wanted = options(arguments or [])
    subjects = [
        bare_relay(),
        ours(),
        *(ours(path.name, checkout=path) for path in wanted.checkout),
        *(ours(flags, *flags.split()) for flags in wanted.flags),
        *(rivals(wanted.rivals) if wanted.rivals else ()),
    ]
    loads = [load for load in LOADS if load in wanted.loads]  # in their order: memory is that of the first streams
    rounds = [measure_round(subjects, loads) for _ in range(wanted.rounds)]
    print(file=sys.stderr)
    names = [subject.name for subject in subjects]
    for name in names[1:]:
        print("\n".join(report(rounds, name)))
    print("\n".join(generators(rounds, names)))


if __name__ == "__main__":
    main(sys.argv[1:])
