"""Outcomes of a tool: progress of a process, a result, or a failure that says what to do next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from msgspec import Struct

from tools.base.hidden_fields import repr_without
from tools.base.output_buffer import OutputBuffer
from tools.base.patterns import lazy_pattern
from tools.base.screen import Window

MOST_BYTES = 5 << 20  # of one picture: more is refused by the large services
MOST_PICTURES = 8  # of one result
T = TypeVar("T")
TypeIn = Callable[[bytes], int]
Resize = Callable[[Window], None]


# The end of a message about a call that is for the model alone: what to do next, which a person does not do. Whole
# sentences of the server's own: a text from elsewhere that a message quotes must not hide a word from a person.
_LONGEST = 400  # characters
_SENTENCES = (
    "Go on with(?:out(?: it| searching)?| what you know)(?:, and (?:say so|tell the person(?: what is wrong)?))?|"
    "Go on without it, and tell the person what you left out: only a person can allow it, in a run that asks. To quote "
    "such text, put it between back-ticks|Go on without(?: it)?, or ask the person|"
    "Ask the person(?: for what you need)?|Do it yourself|Use another tool|"
    "Answer (?:from what you know|here instead|with the plan)|Make it again if it is still needed|"
    "Send the call again(?: without(?: them)?| with flatter ones| as valid JSON|, with a (?:JSON object|tag for each "
    "argument)| with its parameters alone, each in its own tags)?|Send the whole call again, shorter if need be|"
    r"Call [\w.:-]+ again with one whole JSON object(?:; if they are long, in smaller steps)?|"
    "Call again, (?:with (?:the|a) tool's name|in smaller steps)|Call one of the tools instead|"
    "Call it with these arguments, and the person is asked again|Correct this and call again|"
    "Check before doing it again|Decide yourself, or (?:say what is missing|end your turn with what you need to know)|"
    "Find out what changes it, read it again, and then try once more|Write the text in your answer|"
    "Try other words(?:, or (?:the language of the files|ask the person)|, for what the tool would do)|"
    r"There are: [\w.:, -]+|There are no tools: answer without them|recall_memory shows the ids|"
    "Fetch that itself if it is what you want|If you want that page, call web_fetch with its own address|"
    "A result's own note has its id|It must match exactly, spaces included|"
    "Do not ask it again: go on without the answer, or end your turn with what you need to know"
)
_PARTS = (
    "try another page|try again once, or another page|look for a page about it|check the name, or try another address|"
    "check the address, or (?:try another|begin at the site's first page)|write it as (?:192.0.2.1|valid text)|"
    "write it (?:in full, as|as|as in) https://example.com/page|leave out what stands before the @|"
    "use a URL without a port, or with one from 1024(?: to 65535)?|give an offset (?:below that|from 0 to [0-9]+)|"
    "give the text to replace, or make the whole file with write_file|add lines around it so that it is unique|"
    "change one of them|wait until the person has decided on them"
)
_ADVICE = lazy_pattern(rf"(?: (?:{_SENTENCES})|: (?:{_PARTS})|; use another site)\.\Z")


def advice_of(message: str) -> str:
    """Return the advice at the end of a message, with what is before it; empty if it ends otherwise."""
    found = _ADVICE.search(message[-_LONGEST:])
    return found[0] if found else ""


class ToolFailed(Exception):
    """A tool failed. The message is for the model; a person reads it without its end, the `advice`."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message + advice)
        self.advice = advice or advice_of(message)


def required(access: T | None, otherwise: str) -> T:
    """Return what a run has for its tools. Raises ToolFailed, which says what to do without."""
    if access is None:
        raise ToolFailed(otherwise)
    return access


# Seconds between two reports of progress: at most five a second, and one at least every other second.
PROGRESS_SOONEST_S, PROGRESS_LATEST_S = 0.2, 2.0


@dataclass(frozen=True, slots=True)
class Progress:
    """A running process, seen from outside. `tail` has at most 12 lines; `bytes` counts all output so far.

    `output`, which goes on growing, has the rest. `type_in` writes to its terminal, if it has one, and returns how many
    bytes that took; `hides_input` says that the program shows nothing of it now, as of a password. `resize` gives the
    terminal another size.
    """

    elapsed_s: float
    tail: tuple[str, ...] = ()
    lines: int = 0
    bytes: int = 0
    output: OutputBuffer | None = field(default=None, compare=False, repr=False)
    type_in: TypeIn | None = field(default=None, compare=False, repr=False)
    hides_input: bool = False
    resize: Resize | None = field(default=None, compare=False, repr=False)


class Result(Struct, frozen=True):
    """The result for the model. `exit_code` is set for processes only. `untrusted`: the text comes from outside.

    `advice` is the end of the text that says to the model what to do next; it is no part of what people read.

    `pictures` are shown to people, and to a model that can see. `labels` are the sensitivity labels of what the tool
    has read, besides those that its arguments show. `structured` is the text as an object, for programs. `app` is a
    `tools.mcp.apps.App`, which shows it to people.
    """

    ok: bool
    text: str
    exit_code: int | None = None
    untrusted: bool = False
    pictures: tuple[bytes, ...] = ()
    labels: tuple[str, ...] = ()
    advice: str = ""
    structured: Any = None
    app: Any = None

    __repr__ = repr_without("pictures", "app")


def is_picture(data: bytes) -> bool:
    """Return whether it begins as a PNG, JPEG, GIF or WebP does."""
    known = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a")
    return data.startswith(known) or (data.startswith(b"RIFF") and data[8:12] == b"WEBP")


def shown_pictures(found: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the first pictures that are not too large."""
    fitting: Iterator[bytes] = (data for data in found if len(data) <= MOST_BYTES and is_picture(data))
    return tuple(islice(fitting, MOST_PICTURES))
