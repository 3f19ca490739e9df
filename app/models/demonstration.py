"""A demonstration of a run without a model: reasoning, a command with a live output, a file that waits for approval.

The replies are written here and named so wherever they are seen; the calls are real. The reply of a round follows from
the history alone, so any number of people may watch it, and a restarted server goes on where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator

from app.core.provider import BaseProvider, CallForm, Finished, ModelRequest, Piece, TextChunk
from parsing import Thought
from tools.base.patterns import lazy_pattern

NAME = "dragoman-demonstration"
FILE = "demonstration.md"
_PAUSE_S = 0.015  # between two words: as fast as a quick model writes
_WORDS = lazy_pattern(r"\S*\s*")

_STEPS_SHOWN = 6
_COMMAND = "".join(
    rf"echo -e '\033[32mstep {step} of {_STEPS_SHOWN}\033[0m'; sleep 0.5" + "\n" for step in range(1, _STEPS_SHOWN + 1)
)
_TEXT = f"""# {FILE.partition(".")[0].capitalize()}

| part of a run | what you saw |
| --- | --- |
| reasoning | folded above the answer |
| a command | its output, line by line, while it ran |
| an approval | this file, before it was written |
"""

_RUN = (
    Thought("The person wants to see what a run looks like. I run a command that prints something now and then."),
    "First a **command**. It only prints, so it runs without asking. Its output appears while it runs; the button in "
    "its card stops it.\n\n",
    f"<tool_call>\n<function=bash>\n<parameter=command>\n{_COMMAND}</parameter>\n</function>\n</tool_call>\n",
)
_WRITE = (
    Thought("The command has ended. Next comes a call that changes something, so that it has to be approved."),
    "Next a **file**. Calls that change something wait for your approval. You can read the text, edit it, approve it, "
    "or deny it and write a note.\n\n",
    f"<tool_call>\n<function=write_file>\n<parameter=path>\n{FILE}\n</parameter>\n<parameter=content>\n{_TEXT}"
    "</parameter>\n</function>\n</tool_call>\n",
)
_END = (
    "That was a whole run. If you approved the file, it is in the workspace; below you can undo the changes of this "
    "run.\n\nThese replies were **written in advance**, not by a model; the calls were real. The next message goes to "
    "the model that is named below the message box.",
)
_STEPS = (("bash", _RUN), ("write_file", _WRITE))


class Demonstration(BaseProvider):
    """A Provider that goes through the steps whose tools there are, one in each round."""

    model = NAME
    call_form = CallForm.FENCED

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        offered = {tool.name for tool in request.tools}
        steps = [step for tool, step in _STEPS if tool in offered]
        done = _answered_calls(request)
        for piece in _words(steps[done] if done < len(steps) else _END):
            await asyncio.sleep(_PAUSE_S)
            yield piece
        yield Finished("stop")

    async def close(self) -> None:
        """Do nothing."""


def _answered_calls(request: ModelRequest) -> int:
    """The number of results since the last message of a person."""
    done = 0
    for message in request.messages:
        done = 0 if message.role == "user" else done + (message.role == "tool")
    return done


def _words(reply: tuple[Thought | str, ...]) -> Iterator[Piece]:
    for part in reply:
        if isinstance(part, Thought):
            yield from (Thought(word) for word in _WORDS.findall(part.text) if word)
        else:
            yield from (TextChunk(word) for word in _WORDS.findall(part) if word)
