"""A run on a terminal that can move its cursor: whole lines to print, and the end that is still being written.

The answer is Markdown: its finished blocks are printed, each once, and only the last one is drawn again and again. Of
that one no more than fits the window is rendered.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from app.core.events import AgentEvent, Notice, ReasoningDelta, RunFailed, RunFinished, TextDelta, ToolRejected
from routes.terminal.rendering.blocks import Blocks, is_item
from routes.terminal.rendering.figures import duration
from routes.terminal.rendering.markdown import rendered
from routes.terminal.view import View
from routes.texts import text

SENTENCES = (Notice, RunFailed, RunFinished, ToolRejected)
NEW_LINE = Text("\n")
THINKING = "dim italic"
FOLDED_LINES = 3  # of a thought, while it is written
MOST_PENDING = 4_000  # characters of one long line that are drawn


class Transcript:
    """Wraps the View of a run. Printing what `apply` returns, in order, is the whole transcript."""

    def __init__(self, view: View, *, folds: bool = False) -> None:
        """`folds`: of a thought that has ended stays a line, and itself in `folded`."""
        self.view = view
        view.marks_thoughts = False  # they have a style of their own
        self.folded: list[str] = []
        self._folds = folds
        self._pieces: list[str] = []  # of the thought that will be folded
        self._since = self._now = 0.0
        self._blocks = Blocks()
        self._thought = ""  # the line of reasoning that has not ended
        self._last = ""  # the kind of what was printed last
        self.changed = 0  # counts changes of what is being written

    def apply(self, event: AgentEvent, now: float) -> list[RenderableType]:
        self._now = now
        match event:
            case TextDelta():
                out = self._finish_thought()
                out += self._answer(self._blocks.feed(self._piece(event, now)))
            case ReasoningDelta():
                out = self._answer(self._blocks.finish())
                out += self._think(self._piece(event, now))
            case _:
                lines: Sequence[RenderableType] = self.view.apply(event, now)
                if isinstance(event, SENTENCES):  # wrapped at words; output of programs is wrapped by the terminal
                    lines = [Group(Text(one.plain.rstrip("\n"), one.style)) for one in lines if isinstance(one, Text)]
                out = [*self.finish(), *self._card(lines)] if lines else []
        return out

    def finish(self) -> list[RenderableType]:
        """End what is being written, as it is."""
        return [*self._finish_thought(), *self._answer(self._blocks.finish())]

    def writing(self, height: int) -> RenderableType | None:
        """The end of what is being written, of which `height` lines are wanted."""
        if self._thought:
            shown = self._thought[-MOST_PENDING:]
            return Text("\n".join(shown.splitlines()[-FOLDED_LINES:]) if self._folds else shown, THINKING)
        pending = self._blocks.last_lines(height)
        if not pending.strip():
            return None
        gap = [Text()] if self._gap(pending) else []
        return Group(*gap, rendered(pending))

    def _piece(self, event: AgentEvent, now: float) -> str:
        self.view.at_line_start = True
        self.changed += 1
        piece = "".join(one.plain for one in self.view.apply(event, now))
        self.view.at_line_start = True
        return piece

    def _answer(self, blocks: list[str]) -> list[RenderableType]:
        out: list[RenderableType] = []
        for block in blocks:
            out += [NEW_LINE] if self._gap(block) else []
            out.append(rendered(block))
            self._last = "item" if is_item(block) else "answer"
        return out

    def _gap(self, block: str) -> bool:
        """Return whether a block of the answer stands behind an empty line."""
        return bool(self._last) and not (self._last == "item" and is_item(block))

    def _think(self, piece: str) -> list[RenderableType]:
        if self._folds:
            self._since = self._since if self._pieces else self._now
            self._pieces.append(piece)
            self._thought = (self._thought + piece)[-MOST_PENDING:]
            return []
        *lines, self._thought = (self._thought + piece).split("\n")
        if not lines:
            return []
        out: list[RenderableType] = [NEW_LINE] if self._last not in ("", "thought") else []
        self._last = "thought"
        return [*out, Text("".join(f"{line}\n" for line in lines), THINKING)]

    def _finish_thought(self) -> list[RenderableType]:
        if not self._folds:
            return self._think("\n") if self._thought else []
        thought, self._pieces, self._thought = "".join(self._pieces).strip(), [], ""
        if not thought:
            return []
        self.folded.append(thought)
        out: list[RenderableType] = [NEW_LINE] if self._last not in ("", "thought") else []
        self._last = "thought"
        return [*out, Text(f"{text('terminal.thought.folded', time=duration(self._now - self._since))}\n", THINKING)]

    def _card(self, lines: Sequence[RenderableType]) -> list[RenderableType]:
        gap = self._last not in ("", "card")
        self._last = "card"
        return [*([NEW_LINE] if gap else []), *lines]
