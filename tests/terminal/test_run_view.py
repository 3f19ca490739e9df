"""The terminal client: what a run looks like, with and without a terminal."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from app.core.events import (
    AgentEvent,
    ApprovalRequired,
    ApprovalResolved,
    FileChanged,
    ImageReturned,
    MessageAdded,
    Notice,
    ReasoningDelta,
    RunFailed,
    RunFinished,
    TextDelta,
    TextReclassified,
    ToolDelta,
    ToolFinished,
    ToolHanded,
    ToolProgress,
    ToolRejected,
    ToolStarted,
    fields_of,
)
from app.runs.tool_call import PRINTED
from app.transcript.conversation import STOPPED
from app.transcript.reply_calls import THOUGHT as DRAFTED
from routes.terminal.approval_text import form_of, question
from routes.terminal.exit_codes import exit_code
from routes.terminal.screen import Screen
from routes.terminal.view import View, printable, read_event
from routes.texts import text
from tools.mcp.names import public_name

ANSWERED = RunFinished("answered", "done", 1, 1, {})
STARTED = ToolStarted("c1", "bash", {"command": "echo hello"}, "fence")
FINISHED = ToolFinished("c1", "bash", True, "hello", 0.25, 0)


def transcript(events: Iterable[AgentEvent], *, summary: bool = False) -> str:
    view = View(summary=summary)
    return "".join(piece.plain for event in events for piece in view.apply(event, 0.0))


def test_a_run_reads_from_top_to_bottom() -> None:
    events: list[AgentEvent] = [
        ReasoningDelta("Hm."),
        TextDelta("I will "),
        TextDelta("look."),
        STARTED,
        FINISHED,
        TextDelta("Done."),
        ANSWERED,
    ]
    assert transcript(events, summary=True) == (
        "┆ Hm.\nI will look.\n▶ bash\n  echo hello\n✓ bash · exit 0 · 0.2 s\n  hello\nDone.\n  1 step, 1 call\n"
    )
    assert transcript(events).endswith("Done.\n"), "a pipe gets no summary"


def test_what_stopped_a_command_is_no_line_of_its_output() -> None:
    printed = f"{STOPPED} {PRINTED}\n1\n2"
    shown = transcript([STARTED, ToolFinished("c1", "bash", False, printed, 0.2, lines=90, bytes=900)])
    assert "90 lines · the model saw 2\n  Stopped. It may have made changes.\n" in shown
    silent = transcript([STARTED, ToolFinished("c1", "bash", False, STOPPED, 0.2)])
    assert silent.endswith("✗ bash · 0.2 s\n  Stopped. It may have made changes.\n")


def test_a_block_of_code_that_ran_is_shown_once() -> None:
    block = "```bash\necho hello\n```"
    opened, text = ToolDelta("c1", "", "bash"), TextDelta(block, "c1")
    ran = transcript([TextDelta("So:\n"), opened, text, TextDelta("\nThat greets."), STARTED, FINISHED])
    assert ran == "So:\nThat greets.\n▶ bash\n  echo hello\n✓ bash · exit 0 · 0.2 s\n  hello\n"
    asked = ApprovalRequired("c1", "bash", {"command": "echo hello"}, "asks", None)
    denied = ToolRejected("denied", "c1", "bash")
    assert transcript([opened, text, asked, ApprovalResolved("c1", "denied", "ann"), denied]).count("echo hello") == 1
    refused = transcript([opened, text, TextDelta("\n"), ToolRejected("no such tool", "c1", "bash")])
    assert refused == "✗ bash was refused: no such tool\n  ```bash\n  echo hello\n  ```\n", "it is shown nowhere else"


def test_files_that_run_on_the_owners_machine_are_listed_at_the_end() -> None:
    def made(path: str, runs_at: str | None = None, change: str = "created") -> FileChanged:
        return FileChanged("c1", path, change, runs_at=runs_at)

    events: list[AgentEvent] = [made("a.py"), made("Makefile", "make"), made("x.mk", "make"), made("Makefile", "make")]
    events += [made("x.mk", change="deleted"), TextDelta("done"), ANSWERED]
    shown = transcript(events, summary=True)
    head = "Changed files that can run on your machine"
    assert shown.endswith(f"{head} (/changes FILE shows one):\n  ▪ Makefile (runs at “make”)\n")
    assert transcript(events).endswith(f"done\n{head}:\n  ▪ Makefile (runs at “make”)\n")
    many = [made(f"{number}/\x1b.mk", "make") for number in range(20)]
    shown = transcript([*many, ANSWERED])
    assert shown.count("runs at") == 8 and "  ▪ and 12 more\n" in shown and "\x1b" not in shown
    assert head not in transcript([made("a.py"), ANSWERED])
    assert transcript([made("a\nAll is well/Makefile", "make"), ANSWERED]).count("\nAll") == 0, "a name is one line"


def test_a_search_shows_its_words_and_how_much_was_found() -> None:
    found = "1. One\nhttps://example.org/\nText\n\n2. Two\nhttps://example.org/2"
    searched = ToolStarted("c1", "web_search", {"query": "tea"}, "native")
    for written, head in ((found, "✓ web_search · 2 results · 0.2 s"), ("1. Other text", "✓ web_search · 0.2 s")):
        shown = transcript([searched, ToolFinished("c1", "web_search", True, written, 0.25)])
        assert shown.startswith(f"▶ web_search\n  tea\n{head}\n  1. O")


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        ({"measured": True}, "1 step, 2 calls"),
        ({"measured": True, "cost": 0.0045}, "1 step, 2 calls, cost 0.0045"),
        ({"measured": False, "cost": 12}, "1 step, 2 calls, cost about 12"),
        ({"measured": True, "cost": "much"}, "1 step, 2 calls"),
        ({"timing": {"preparation_s": 0.1}}, "1 step, 2 calls"),
        ({"timing": {"first_token_s": 0.42}}, "1 step, 2 calls, first token after 0.4 s"),
        (
            {"timing": {"first_token_s": 61, "tokens_per_s": 30.5}},
            "1 step, 2 calls, first token after 1 min 01 s, 30.5 tokens/s",
        ),
    ],
)
def test_a_run_of_a_model_with_a_price_ends_with_its_cost(usage: dict[str, object], told: str) -> None:
    assert transcript([RunFinished("answered", "", 1, 2, usage)], summary=True).strip() == told


ENDINGS = [
    (RunFinished("answered", "", 1, 0, {}), 0, ""),
    (RunFinished("cancelled", "", 1, 0, {}), 130, "■ Stopped."),
    (RunFinished("round_limit", "", 20, 20, {}), 1, "■ Stopped at the limit of steps. Continue?"),
    (RunFailed("model_down", "No model.", True), 1, "✗ The run failed (model_down): No model. /retry tries again."),
]


@pytest.mark.parametrize(("ending", "code", "shown"), ENDINGS)
def test_endings_are_told_and_become_exit_codes(ending: AgentEvent, code: int, shown: str) -> None:
    assert transcript([ending]).strip() == shown
    assert exit_code(ending) == code


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        (
            ToolHanded("c", "get_weather", {"city": "Oslo"}, "native"),
            "▷ get_weather was sent to your app\n  Oslo\n",
        ),
        (ToolRejected("no such tool", "c", "bsh"), "✗ bsh was refused: no such tool\n"),
        (ToolRejected("cut off"), "✗ A call was refused: cut off\n"),
        (ToolRejected("cut off. Go on.", "c", "bash", None, " Go on."), "✗ bash was refused: cut off.\n"),
        (
            ToolFinished("c", "read_file", False, "a is gone: look.", 1.0, advice=": look."),
            "✗ read_file · 1.0 s\n  a is gone.\n",
        ),
        (Notice("retry", "Trying again."), "! Trying again.\n"),
        (FileChanged("c", "a\x1b[31m.csv", "created", 2048), "  ▪ a<U+001B>[31m.csv (created, 2.0 KB)\n"),
        (ImageReturned("ab", "image/png", 100, "c"), "  ▪ picture (image/png, 100 B)\n"),
        (FileChanged("c", "b.csv", "deleted"), "  ▪ b.csv (deleted)\n"),
        (FileChanged("c", "big", "created", 2048, unkept="large"), "  ▪ big (created, 2.0 KB, cannot be undone)\n"),
        (MessageAdded("And?"), "> And?\n"),
        (MessageAdded("See", [{"name": "cat.png"}, {"media_type": "image/gif"}]), "> See, cat.png, image/gif\n"),
        (ToolFinished("c", "read_file", False, "No such file.", 61.0), "✗ read_file · 1 min 01 s\n  No such file.\n"),
        (
            ToolStarted("c", "write_file", {"path": "a", "content": "x\ny"}, "native"),
            "▶ write_file\n  path: a\n  content: x\n  y\n",
        ),
    ],
)
def test_cards(event: AgentEvent, shown: str) -> None:
    assert transcript([TextDelta("so"), event]) == f"so\n{shown}"


def test_a_denial_is_shown_once() -> None:
    assert transcript([ToolRejected("denied", "c", "bash", advice="denied")]) == ""


def test_a_question_of_a_server_is_no_call() -> None:
    form = {"properties": {"colour": {"type": "string"}, "size": {"default": 7}, "odd": None}}
    asked = ApprovalRequired("q", "mcp__helper__elicitation", {"message": "Which?", "schema": form}, "It asks.", 1e9)
    assert form_of(asked) == {"colour": "", "size": 7, "odd": ""}
    assert "? mcp__helper__elicitation asks you." in str(question(asked, None)[0])
    call = ApprovalRequired("c", public_name("helper", "elicitation"), {"message": "Pay?"}, "It asks.", 1e9)
    assert form_of(call) is None
    assert "wants to run" in str(question(call, None)[0])


def test_a_long_result_keeps_head_and_tail() -> None:
    lines = transcript([ToolFinished("c", "bash", True, "\n".join(map(str, range(1000))), 1.0, 0)]).splitlines()
    assert [line.strip() for line in lines[1:4]] == ["0", "1", "2"]
    assert lines[-1].strip() == "999"
    assert "  ... 982 more lines ..." in lines
    assert len(lines) == 20


def test_a_shortened_result_counts_all_lines_that_were_written() -> None:
    ends = "\n".join(map(str, range(72))), "\n".join(map(str, range(99_928, 100_000)))
    text = f"{ends[0]}\n[... 578,000 characters left out ...]\n{ends[1]}\n[exit code 1]"
    event = ToolFinished("c", "bash", False, text, 1.0, 1, lines=100_000, bytes=588_895)
    lines = transcript([event]).splitlines()
    assert "100,000 lines · the model saw 144" in lines[0]
    assert lines[6].strip() == "5" and lines[8].strip() == "99989" and "... 99,983 more lines ..." in lines[7]


def test_the_excerpt_of_an_edit_says_how_many_changes_it_leaves_out() -> None:
    diff = "".join(f" same {number}\n-old {number}\n+new {number}\n" for number in range(20))
    for name, ok, more in (("edit_file", True, "43 more lines, 29 changed"), ("bash", True, "43 more lines ...")):
        assert more in transcript([ToolFinished("c", name, ok, f"Edited a.py.\n{diff}", 0.1)])


def drawn(view: View, now: float, height: int = 24) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(view.live(now, height))
    return str(getattr(console.file, "getvalue")())  # noqa: B009


def test_the_live_region_follows_a_running_command() -> None:
    view = View(summary=True)
    view.apply(ToolDelta("c1", '{"com', "bash"), 0.0)
    assert "bash · 1.0 s · the agent is writing the call" in drawn(view, 1.0)
    view.apply(STARTED, 2.0)
    assert "bash · 1.0 s · starting" in drawn(view, 3.0)
    view.apply(ToolProgress("c1", 5.0, [f"line {n}" for n in range(12)], 40, 2048), 7.0)
    shown = drawn(view, 7.5)
    assert "bash · 5.5 s · 40 lines, 2.0 KB" in shown, "time goes on between the server's reports"
    assert "│ line 0" in shown and "│ line 11" in shown
    view.apply(ToolProgress("c1", 5.0, ["line"], 1, 4), 7.0)
    assert "1 line, 4 B" in drawn(view, 7.0)
    view.apply(FINISHED, 8.0)
    assert not view.busy


@pytest.mark.parametrize("height", [0, 1, 2, 3, 8, 13, 14, 50])
def test_a_low_window_keeps_the_newest_lines(height: int) -> None:
    view = View(summary=True)
    for call in ("c1", "c2"):
        view.apply(ToolProgress(call, 1.0, [f"line {n}" for n in range(12)], 12, 96), 1.0)
    lines = drawn(view, 1.0, height).splitlines()
    assert len(lines) <= max(2, height)
    room = min(12, max(0, height // 2 - 1))
    assert [line.strip() for line in lines[1 : 1 + room]] == [f"│ line {n}" for n in range(12 - room, 12)]


def test_the_end_of_a_run_clears_the_live_region() -> None:
    view = View(summary=True)
    view.apply(STARTED, 0.0)
    view.apply(RunFailed("x", "y", False), 0.0)
    assert not view.busy


def test_text_that_was_thought_is_marked_and_not_printed_again() -> None:
    events: list[AgentEvent] = [
        *(TextDelta("Hm, "), TextDelta("so."), TextReclassified(7), ReasoningDelta("Hm, "), ReasoningDelta("so.Well.")),
        *(ToolRejected(DRAFTED, "c1", "bash"), TextDelta("Yes."), ReasoningDelta("More."), ANSWERED),
    ]
    assert (
        transcript(events)
        == f"Hm, so.\n{text('terminal.thought')}\n┆ Well.\n✗ bash was refused: {DRAFTED}\nYes.\n┆ More.\n"
    )
    screen = io.StringIO()
    Screen(Console(file=screen, force_terminal=True), View(summary=True)).show(TextReclassified(1))
    assert screen.getvalue().startswith("\x1b[2m"), "dim"


HOSTILE = "a\x1b[2Jb\x1b]0;title\x07c\x1b]52;c;ZXZpbA==\x1b\\d\x9b31me\x07f\u202eg\ud800h\r\ni\rj\x1b"


def test_hostile_text_cannot_steer_the_terminal() -> None:
    assert printable(HOSTILE) == "abcde\u2407f\ufffdg\ufffdh\ni\u240dj\u241b"


HOSTILE_EVENTS = [
    TextDelta(HOSTILE),
    ReasoningDelta(HOSTILE),
    Notice("x", HOSTILE),
    MessageAdded(HOSTILE, [{"name": HOSTILE}]),
    ToolRejected(HOSTILE, "c", HOSTILE),
    ToolStarted("c", HOSTILE, {HOSTILE: HOSTILE, "n": [HOSTILE]}, "fence"),
    ToolFinished("c", HOSTILE, False, HOSTILE, 1.0, 1),
    RunFinished(HOSTILE, HOSTILE, 1, 1, {}),
    RunFailed(HOSTILE, HOSTILE, False),
]
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.mark.parametrize("event", HOSTILE_EVENTS, ids=lambda event: event.type)
def test_no_event_carries_a_control_character_to_the_screen(event: AgentEvent) -> None:
    assert CONTROL.search(transcript([event])) is None


def test_the_live_region_carries_none_either() -> None:
    view = View(summary=True)
    view.apply(ToolDelta("c", HOSTILE, HOSTILE), 0.0)
    view.apply(ToolProgress("c", 0.0, [HOSTILE], 1, 1), 0.0)
    assert CONTROL.search(drawn(view, 0.0)) is None


@settings(deadline=None)
@given(st.lists(st.text(alphabet="\x1b[]0;m\x07\\\x9ba\r\n")))
def test_slicing_cannot_smuggle_an_escape(pieces: list[str]) -> None:
    assert CONTROL.search(transcript([TextDelta(piece) for piece in pieces])) is None


def on_a_console(events: Iterable[AgentEvent], *, markdown: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, color_system=None, width=60, markup=False, highlight=False)
    screen = Screen(console, View(summary=False), markdown=markdown, clock=lambda: 0.0)
    for event in events:
        screen.show(event)
    screen.close()
    return out.getvalue()


RUNNING: list[AgentEvent] = [
    TextDelta("Look:"),
    STARTED,
    ToolProgress("c1", 1.0, ["working"], 1, 8),
    TextDelta("meanwhile"),
    FINISHED,
    ANSWERED,
]


def test_a_pipe_gets_the_transcript_and_nothing_else() -> None:
    assert on_a_console(RUNNING) == transcript(RUNNING)


def test_a_long_line_stays_one_line_for_pipes() -> None:
    assert on_a_console([TextDelta("word " * 100)]) == "word " * 100


@pytest.mark.parametrize(
    "event", [STARTED, FINISHED, ANSWERED, TextDelta("\U0001f600"), TextReclassified(3)], ids=lambda event: event.type
)
def test_events_survive_the_wire(event: AgentEvent) -> None:
    assert read_event(event.type, json.dumps(fields_of(event))) == event


def test_a_lone_surrogate_arrives_as_a_replacement() -> None:
    arguments = {"text": "a\ud800b"}
    read = read_event("tool.started", json.dumps(fields_of(ToolStarted("c", "t\udfff", arguments, "native"))))
    assert read == ToolStarted("c", "t\ufffd", {"text": "a\ufffdb"}, "native")


def test_an_unknown_event_is_passed_over_and_a_broken_one_is_told() -> None:
    assert read_event("from.the.future", "{}") is None
    with pytest.raises(ValueError, match=r"text.delta event .* \(Object missing required field `text`\)"):
        read_event("text.delta", "{}")
    with pytest.raises(ValueError, match="cannot be read"):
        read_event("text.delta", "{")
    with pytest.raises(ValueError, match="cannot be read"):
        read_event("text.delta", '"\\ud' + "[" * 100_000)
