"""The scale of the weights in `ending_weights.bin`: see `endings`. Written by `python -m tests.train_endings`."""

from __future__ import annotations

DIGEST = "91b128457c6e84d4"  # of the examples
BIAS = -1.8062
SCALE = 0.209762
