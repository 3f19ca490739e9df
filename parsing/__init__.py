"""The ground floor: a model's text in, events out. Sans-IO: no async, clock, chance, network or files."""

from parsing.events import (
    Arguments,
    BadCall,
    Call,
    CallDelta,
    CallOpened,
    Parsed,
    ParseEvent,
    Reclassified,
    Text,
    Thought,
)
from parsing.parser import Parser, parse

__all__ = [
    "Arguments",
    "BadCall",
    "Call",
    "CallDelta",
    "CallOpened",
    "ParseEvent",
    "Parsed",
    "Parser",
    "Reclassified",
    "Text",
    "Thought",
    "parse",
]
