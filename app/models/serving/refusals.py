"""Reasons for which a model file is not added or served. Each message says what to do."""

from __future__ import annotations


class UnfitFile(Exception):
    """The file cannot be served."""


class TooLittleMemory(Exception):
    """The model does not fit into memory; the message has the figures."""


class UnknownServedModel(Exception):
    """No model file was added under this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"No model {name[:80]!a} was added. `dragoman model list` and GET /served-models have them.")
