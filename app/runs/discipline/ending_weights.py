"""The scale of `ending_weights.bin`: see `endings`. `python -m tests.tasks.train_endings` writes it."""

from __future__ import annotations

DIGEST = "06f6f2f00ec60db1"  # of the examples
BIAS = -1.8062
SCALE = 0.209762
