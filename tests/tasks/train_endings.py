"""`python -m tests.tasks.train_endings`: learn from `fixtures/endings` which last sentences announce work.

Logistic regression on words and groups of characters, the same each time. It writes
`app/runs/discipline/ending_weights.bin` and the module beside it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import product
from math import exp, sqrt
from random import Random
from typing import NamedTuple
from zlib import compress

from app.runs.discipline.endings import PLACES, WEIGHTS, groups, last_sentence
from tests import ROOT

FRAMES = ROOT / "fixtures/endings/frames.toml"
EXAMPLES = ROOT / "fixtures/endings/examples.txt"
MODULE = ROOT / "app/runs/discipline/ending_weights.py"
PASSES, RATE, DECAY = 15, 0.6, 1e-3
LEVELS = 31  # of a weight, on each side of nothing
HEAD = '''"""The scale of `ending_weights.bin`: see `endings`. `python -m tests.tasks.train_endings` writes it."""

from __future__ import annotations

DIGEST = "{digest}"  # of the examples
BIAS = {bias!r}
SCALE = {scale!r}
'''


class Example(NamedTuple):
    language: str
    announces: bool
    places: tuple[int, ...]
    counts: float = 1.0
    text: str = ""


class Learnt(NamedTuple):
    bias: float
    weights: list[float]

    def score(self, places: Sequence[int]) -> float:
        return self.bias + sum(self.weights[at] for at in places) / sqrt(len(places) or 1)


def digest() -> str:
    """Return the digest of what the weights are learnt from."""
    return blake2b(EXAMPLES.read_bytes() + FRAMES.read_bytes(), digest_size=8).hexdigest()


def examples() -> list[Example]:
    found, language = list[Example](), ""
    for line in EXAMPLES.read_text().splitlines():
        if line.startswith("["):
            language = line.strip("[]")
        elif line[:2] in ("> ", "= "):
            found.append(
                Example(language, line[0] == ">", tuple(sorted(groups(last_sentence(line[2:])))), 2.0, line[2:])
            )
    return [*found, *framed()]


def framed() -> Iterator[Example]:
    """Return the sentences that the frames make of the phrases."""
    for language, row in tomllib.loads(FRAMES.read_text()).items():
        for announces, frames in ((True, row["announces"]), (False, row["ends"])):
            for frame, (at, phrase) in product(frames, enumerate(row["phrases"])):
                facts = row["facts"]
                text = frame.format(*phrase, f=facts[at], g=facts[at - 4])
                yield Example(language, announces, tuple(sorted(groups(last_sentence(text)))))


def learn(found: Sequence[Example]) -> Learnt:
    """Gradient descent, an example at a time, in an order that is the same each time."""
    chance, weights, bias = Random(1), [0.0] * PLACES, 0.0
    order = list(found)
    for turn in range(PASSES):
        chance.shuffle(order)
        rate = RATE / (1 + turn / 8)
        for one in order:
            norm = sqrt(len(one.places))
            score = bias + sum(weights[at] for at in one.places) / norm
            wrong = one.counts * (one.announces - 1 / (1 + exp(-score)))
            bias += rate * wrong * 0.1
            step = rate * wrong / norm
            for at in one.places:
                weights[at] += step - rate * DECAY * weights[at]
    return Learnt(bias, weights)


def write(learnt: Learnt) -> None:
    """Write the weights as signed bytes, zlib around them, and the module with their scale."""
    scale = max(map(abs, learnt.weights)) / LEVELS
    WEIGHTS.write_bytes(compress(bytes(round(one / scale) % 256 for one in learnt.weights), 9))
    MODULE.write_text(HEAD.format(digest=digest(), bias=round(learnt.bias, 4), scale=round(scale, 6)))


if __name__ == "__main__":
    write(learn(examples()))
