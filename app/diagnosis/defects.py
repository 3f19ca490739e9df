"""Defects of model servers: a row each, with what gives it away in an answer, and what helps.

An answer alone gives a server away where it breaks the protocol, however weak its model is. What a model may have
written itself counts only if the same request, sent streamed and whole, twice each, is answered alike in each way and
differently in both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.diagnosis.probes import AT_A_TIME, AT_ONCE, NATIVE, TOO_LONG, tools_of
from app.diagnosis.trial import EVIDENCE, Trial, comparable, whole_calls
from app.models.http.failures import excerpt
from app.models.wire.grammars.tool_grammar import NAME as TOOL_GRAMMAR
from tools.base.patterns import lazy_pattern

NATIVE_ADVICE = "Update the server, or set `tool_calls` so that calls are taught in the prompt instead."
REASONS = {"stop", "length", "tool_calls", "function_call", "content_filter"}
MARKS = lazy_pattern(
    r"</?tool_calls?>|</?function[=>]|</?invoke|\[/?TOOL_CALLS\]|<\|?tool|<｜|<\|python_tag\|>|<\|call\|>"
)
THOUGHT_END = lazy_pattern(r"</think(?:ing)?>|\[/THINK\]|<channel\|>|◁/think▷")
LONGEST_TOKEN = 10  # characters of a schema, or of these answers: nothing that is longer has so few tokens
CALL_TOKENS = 30  # of the markup around a call
SLACK = 12  # tokens of marks at the beginning and the end
AROUND = lazy_pattern(r"BEGIN.*END", re.DOTALL)


class Sighting(Struct, frozen=True):
    """An answer that shows a defect; `seen` is the evidence."""

    trial: Trial
    seen: str


class Defect(Struct, frozen=True):
    """A row. `look` returns the evidence in one answer, `over` that in all of them.

    `advice` says what to do, `helps` are settings that help. `form`: so does another form of calls. What a row
    without either function is about, `difference` finds.
    """

    code: str
    about: str
    advice: str
    look: Callable[[Trial], str] = lambda _: ""
    over: Callable[[Sequence[Trial]], Iterator[Sighting]] = lambda _: iter(())
    helps: Mapping[str, Any] = {}
    form: bool = False  # another form of calls helps


def calls_in_text(trial: Trial) -> str:
    if not trial.is_native or trial.wire.calls or trial.probe.choice == "none" or trial.probe.is_quoted:
        return ""
    return excerpt(trial.wire.content, EVIDENCE) if whole_calls(trial.wire.content) else ""


def calls_in_thought(trial: Trial) -> str:
    wire = trial.wire
    if not trial.is_native or wire.calls or wire.content.strip() or trial.probe.choice == "none":
        return ""
    return excerpt(wire.reasoning, EVIDENCE) if whole_calls(wire.reasoning) else ""


def tools_ignored(trial: Trial) -> str:
    """Find tools that the prompt cannot hold, because it has too few tokens."""
    read = trial.wire.prompt_tokens
    if (
        not trial.is_native
        or not read
        or trial.wire.calls
        or read >= len(json.dumps(tools_of(trial.probe))) // LONGEST_TOKEN
    ):
        return ""
    return f"{read} tokens are counted, with the tools"


def arguments_doubled(trial: Trial) -> str:
    for call in trial.wire.calls:
        try:
            value, end = json.JSONDecoder().raw_decode(call.raw)
        except (ValueError, RecursionError):
            value, end = None, 0
        if isinstance(value, dict) and call.raw[end:].strip():
            return excerpt(call.raw, EVIDENCE)
    return ""


def arguments_encoded(trial: Trial) -> str:
    for call in trial.wire.calls:
        if not call.is_text:
            return f"an object instead of a string: {excerpt(call.raw, EVIDENCE)}"
        try:
            value = json.loads(call.raw)
            if isinstance(value, str) and isinstance(json.loads(value), dict):
                return f"JSON within a string: {excerpt(call.raw, EVIDENCE)}"
        except (ValueError, RecursionError):
            pass
    return ""


def is_object(raw: str) -> bool:
    try:
        return isinstance(json.loads(raw or "{}"), dict)
    except (ValueError, RecursionError):
        return False


def cut_hidden(trial: Trial) -> str:
    wire, limit = trial.wire, trial.probe.tokens
    if not trial.probe.is_cut or wire.finish == "length" or not wire.tokens:
        return ""
    return f"{wire.tokens} of {limit} tokens, finish_reason {wire.finish!r}" if wire.tokens >= limit else ""


def limit_ignored(trial: Trial) -> str:
    characters, limit = trial.wire.characters, trial.probe.tokens
    if not trial.probe.is_cut or characters <= LONGEST_TOKEN * limit:
        return ""
    return f"{characters} characters where at most {limit} tokens were asked for"


def finish_wrong(trial: Trial) -> str:
    wire = trial.wire
    if wire.finish not in REASONS:
        return f"finish_reason is {wire.finish!r}"
    if wire.calls and wire.finish == "stop" and not trial.probe.choice:  # OpenAI's own end such a call with it
        return "finish_reason is 'stop' although there is a call"
    if not wire.calls and wire.finish in ("tool_calls", "function_call"):
        return f"finish_reason is {wire.finish!r} without a call"
    return ""


def index_doubled(trial: Trial) -> str:
    wire = trial.wire
    if not trial.streamed or not wire.calls:
        return ""
    if None in wire.indexes:
        return "a call without an index"
    return f"{len(wire.calls)} calls with the indexes {wire.indexes}" if repeats(wire.indexes) else ""


def id_wrong(trial: Trial) -> str:
    ids = [call.id for call in trial.wire.calls]
    return f"the ids of its calls are {ids}" if not all(ids) or repeats(ids) else ""


def repeats(values: Sequence[object]) -> bool:
    return len(set(values)) < len(values)


def choice_ignored(trial: Trial) -> str:
    choice, names = trial.probe.choice, [call.name for call in trial.wire.calls]
    if not choice or not trial.is_whole or {"tools", "tool_choice"} & trial.dropped:
        return ""
    if choice == "none":
        return f"called {names[0]}" if names else ""
    if not names:  # calls that were left in the text are another defect
        text = trial.wire.content
        return "" if whole_calls(text) else f"answered {excerpt(text, 60)!r}"
    return f"called {names[0]}" if choice not in ("required", names[0]) else ""


def quote_run(trial: Trial) -> str:
    word, content = trial.values.get("word", ""), trial.wire.content
    if not trial.probe.is_quoted or not AROUND.search(content) or word in content:
        return ""
    return (
        f"called with it, and left {excerpt(content, EVIDENCE)!r}"
        if any(word in call.raw for call in trial.wire.calls)
        else ""
    )


def swallowed(trials: Sequence[Trial]) -> Iterator[Sighting]:
    """Find text that was counted and not sent; a model whose plain answers look so hides its thoughts."""
    found = [Sighting(trial, seen) for trial in trials if (seen := _more_counted(trial))]
    if all(one.trial.probe.form is NATIVE or one.trial.probe.is_quoted for one in found):
        yield from found


def _more_counted(trial: Trial) -> str:
    """No text has less than half a character for each token; a quoted call that is cut away leaves little."""
    wire = trial.wire
    spent = (wire.tokens or 0) - SLACK - CALL_TOKENS * len(wire.calls)
    if not trial.is_whole or spent <= (1 if trial.probe.is_quoted else 2) * wire.characters:
        return ""
    return f"{wire.tokens} tokens were counted, {wire.characters} characters arrived"


def markup_left(trial: Trial) -> str:
    if not trial.wire.calls or trial.probe.is_quoted:
        return ""
    return excerpt(trial.wire.content, EVIDENCE) if MARKS.search(trial.wire.content) else ""


def thoughts_mixed(trials: Sequence[Trial]) -> Iterator[Sighting]:
    """Find thoughts in the text of a server that sends others apart; one that never does leaves them on purpose."""
    if any(trial.wire.reasoning for trial in trials):
        for trial in trials:
            if THOUGHT_END.search(trial.wire.content):
                yield Sighting(trial, excerpt(trial.wire.content, EVIDENCE))


def answers_in_thought(trials: Sequence[Trial]) -> Iterator[Sighting]:
    plain = [trial for trial in trials if trial.probe.name in ("plain text", AT_ONCE.name) and trial.is_whole]
    if len(plain) >= AT_A_TIME and all(trial.wire.reasoning and not trial.wire.content.strip() for trial in plain):
        yield from (Sighting(trial, f"only reasoning: {excerpt(trial.wire.reasoning, EVIDENCE)}") for trial in plain)
    for trial in trials:
        if THOUGHT_END.search(trial.wire.reasoning):
            yield Sighting(trial, excerpt(trial.wire.reasoning, EVIDENCE))


def replies_mixed(trials: Sequence[Trial]) -> Iterator[Sighting]:
    at_once = [trial for trial in trials if trial.probe is AT_ONCE]
    words = {trial.values["word"] for trial in at_once}
    for trial in at_once:
        if others := sorted(word for word in words - {trial.values["word"]} if word in trial.wire.content):
            yield Sighting(trial, f"holds {others[0]}, which another request asked for")


def picture_ignored(trials: Sequence[Trial]) -> Iterator[Sighting]:
    """Find a picture that adds no tokens, and changes nothing."""
    seen = {
        trial.probe.picture: trial for trial in trials if "picture" in trial.probe.name and trial.wire.prompt_tokens
    }
    if len({(one.wire.prompt_tokens, one.wire.content) for one in seen.values()}) == 1 < len(seen):
        yield Sighting(seen[True], f"{seen[True].wire.prompt_tokens} tokens and the same answer with and without it")


def prompt_cut(trial: Trial) -> str:
    words = int(trial.values.get("words", "0"))
    read = trial.wire.prompt_tokens
    if trial.probe is not TOO_LONG or not read or read >= words:
        return ""
    return f"answered a prompt of {words} words, of which it counts {read} tokens"


def broken(trials: Sequence[Trial]) -> Iterator[Sighting]:
    for trial in trials:
        if trial.wire.broken or (trial.status >= 500 and trial.probe is not AT_ONCE and not trial.probe.picture):
            yield Sighting(trial, trial.wire.broken or trial.error)


def busy(trials: Sequence[Trial]) -> Iterator[Sighting]:
    at_once = [trial for trial in trials if trial.probe is AT_ONCE]
    yield from (Sighting(trial, trial.error) for trial in at_once if trial.status >= 400)


DEFECTS = (
    Defect("tools_ignored", "Tools are accepted and ignored.", "Start the server with a chat template that renders "
           "them (llama.cpp: `--jinja`), or set `tool_calls` so that calls are taught in the prompt.", tools_ignored,
           form=True),
    Defect("calls_in_text", "Calls are left in the text.", NATIVE_ADVICE + " For vLLM and SGLang: start it with the "
           "`--tool-call-parser` of this model; for llama.cpp: with `--jinja`.", calls_in_text, form=True),
    Defect("calls_in_thought", "Calls are left in the reasoning.", NATIVE_ADVICE, calls_in_thought, form=True),
    Defect("calls_lost", "Calls are lost.", NATIVE_ADVICE, form=True),
    Defect("call_unasked", "Calls are reported although no tools were offered.", "Update the server.",
           lambda trial: f"called {trial.wire.calls[0].name!r}"
           if trial.wire.calls and trial.probe.form is not NATIVE else ""),
    Defect("name_lost", "The name of a call is lost.", NATIVE_ADVICE,
           lambda trial: "a call without a name" if any(not call.name for call in trial.wire.calls) else "", form=True),
    Defect("arguments_lost", "Arguments are lost or cut.", NATIVE_ADVICE, form=True),
    Defect("arguments_doubled", "Arguments come twice, or those of several calls in one.", NATIVE_ADVICE,
           arguments_doubled, form=True),
    Defect("arguments_encoded", "Arguments are not a JSON object in a string.", "Runs decode them; other clients may "
           "not. Update the server.", arguments_encoded),
    Defect("arguments_changed", "Arguments arrive changed.", NATIVE_ADVICE, form=True),
    Defect("index_doubled", "Calls in one reply cannot be told apart by their index.", "Runs tell them apart by their "
           "ids and names; other clients may not. Update the server.", index_doubled),
    Defect("id_wrong", "Calls have no id, or the same one.", "Runs give them ids of their own. Update the server.",
           id_wrong),
    Defect("text_lost", "Text beside a call is lost.", NATIVE_ADVICE, form=True),
    Defect("markup_left", "Markup of calls is left in the text.", "Runs take it out. Update the server.", markup_left),
    Defect("reply_swallowed", "Text is counted and not sent.", NATIVE_ADVICE, over=swallowed, form=True),
    Defect("quote_run", "A quoted call is taken for a call.", NATIVE_ADVICE, quote_run, form=True),
    Defect("thought_in_text", "Thoughts arrive in the text.", "Runs take them out. Start the server with the reasoning "
           "parser of this model, or with none.", over=thoughts_mixed),
    Defect("answer_in_thought", "Answers arrive as reasoning.", "Start the server with the reasoning parser of this "
           "model, or with none (llama.cpp: `--reasoning-format none`).", over=answers_in_thought),
    Defect("finish_wrong", "The finish_reason is wrong.", "Runs go by the calls. Update the server.", finish_wrong),
    Defect("cut_hidden", "An answer that was cut at its limit is reported as whole.", "Set a token limit that is never "
           "reached, and update the server: runs cannot see that such a call is cut.", cut_hidden),
    Defect("limit_ignored", "`max_tokens` is ignored.", "Set the limit in the server itself.", limit_ignored),
    Defect("stop_ignored", "`stop` is ignored.", "Clients that rely on it get more than they asked for. Update it.",
           lambda trial: excerpt(trial.wire.content, EVIDENCE)
           if any(word in trial.wire.content for word in trial.probe.fields.get("stop", ())) else ""),
    Defect("choice_ignored", "`tool_choice` is ignored.", f"Set `{TOOL_GRAMMAR}`, if the server can enforce a grammar.",
           choice_ignored, helps={TOOL_GRAMMAR: "on"}),
    Defect("usage_missing", "Tokens are not reported.", "Budgets then count estimates. Update the server.",
           lambda trial: "no usage" if trial.wire.tokens is None and "stream_options" not in trial.dropped else ""),
    Defect("stream_differs", "A streamed answer differs from a whole one.", "Update the server."),
    Defect("replies_mixed", "Answers to requests at the same time are mixed up.", "Set `max_requests` to 1.",
           over=replies_mixed, helps={"max_requests": 1}),
    Defect("busy", "It refuses some of 8 requests at a time.", "Set `max_requests` to what it can take.", over=busy),
    Defect("picture_ignored", "Pictures are accepted and ignored.", "Set `images` to false.", over=picture_ignored,
           helps={"images": False}),
    Defect("prompt_cut", "A prompt beyond its window is cut without a word.", "Set `window` to what it can read, or "
           "give the server a larger one (Ollama: `num_ctx`).", prompt_cut),
    Defect("broken", "Requests fail.", "See the server's log. " + NATIVE_ADVICE, over=broken, form=True),
)  # fmt: skip


def difference(streamed: Trial, whole: Trial) -> tuple[str, str]:
    """Return the code of the defect that makes two answers differ, and the evidence."""
    one, other = streamed.wire, whole.wire
    calls = [(call.name, comparable(call.raw)) for call in one.calls]
    others = [(call.name, comparable(call.raw)) for call in other.calls]
    shown = f"streamed {calls or one.content!r}, whole {others or other.content!r}"
    if len(calls) != len(others):
        return "calls_lost", excerpt(shown, 300)
    if calls != others:
        lost = [raw for _, raw in (*calls, *others) if raw == "{}" or not is_object(raw)]
        return ("arguments_lost" if lost else "arguments_changed"), excerpt(shown, 300)
    if one.reasoning.strip() != other.reasoning.strip():
        return "thought_in_text", excerpt(f"reasoning streamed {one.reasoning!r}, whole {other.reasoning!r}", 300)
    if one.content.strip() != other.content.strip():
        code = "text_lost" if calls else "stream_differs"
        return code, excerpt(f"streamed {one.content!r}, whole {other.content!r}", 300)
    return "finish_wrong", f"streamed {one.finish!r}, whole {other.finish!r}"


def found_in(trials: Sequence[Trial], pairs: Sequence[tuple[Trial, Trial]]) -> dict[str, list[Sighting]]:
    """Return the sightings of each defect that there are. `pairs` are the answers that differ for certain."""
    read = [trial for trial in trials if trial.is_answered]
    found: dict[str, list[Sighting]] = {}
    for row in DEFECTS:
        single = [Sighting(trial, seen) for trial in read if (seen := row.look(trial))]
        if sightings := [*single, *row.over(trials)]:
            found[row.code] = sightings
    explained = {id(one.trial) for row in DEFECTS if row.form for one in found.get(row.code, ())}
    for streamed, whole in pairs:
        code, seen = difference(streamed, whole)
        if code in found or not explained & {id(streamed), id(whole)}:  # else it has given itself away
            found.setdefault(code, []).append(Sighting(streamed, seen))
    return found
