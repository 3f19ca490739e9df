"""The prompts of a diagnosis: a row each, with what is sent and the calls that serve it.

They ask for words that are given, so that an answer shows what its server has done to them, however small the model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from app.core.provider import CallForm

Values = Mapping[str, str]
NATIVE, TAGGED, FENCED = CallForm.NATIVE, CallForm.TAGGED, CallForm.FENCED
TOKENS = 128  # of an answer
AT_A_TIME = 8  # requests
ROOM = 1024  # of one whose model thinks first


def _schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
GUEST = _schema(name=TEXT, age=WHOLE)
# The tools that are offered natively; those that the prompt teaches are the product's own `bash` and `write_file`.
OFFERED: Mapping[str, tuple[str, dict[str, Any]]] = {
    "get_weather": ("Get the weather of a city.", _schema(city=TEXT)),
    "add_numbers": ("Add two whole numbers.", _schema(a=WHOLE, b=WHOLE)),
    "save_note": ("Save a note.", _schema(title=TEXT, text=TEXT)),
    "book_trip": ("Book a trip.", _schema(trip=_schema(city=TEXT, guests={"type": "array", "items": GUEST}))),
    "show_time": ("Show the time.", {"type": "object", "properties": {}}),
}
SAMPLES: tuple[Values, ...] = (
    {"word": "kestrel4711", "city": "Lisbon", "other": "Oslo", "a": "37", "b": "54"},
    {"word": "marmot8203", "city": "Kyoto", "other": "Quito", "a": "112", "b": "9"},
    {"word": "thistle5590", "city": "Nairobi", "other": "Turin", "a": "6", "b": "781"},
    {"word": "cobalt1738", "city": "Bergen", "other": "Lima", "a": "45", "b": "45"},
)


class Asked(Struct, frozen=True):
    """A call that serves a prompt."""

    name: str
    arguments: Mapping[str, Any] = {}


class Probe(Struct, frozen=True, kw_only=True):
    """A row. `form` is that in which tools are offered, None for no tools; `tools` are those of OFFERED, none for all.

    `fields` are those of the request. It is sent streamed, and also whole if `both`; `samples` times in a whole
    diagnosis, each time with other words, and once in a quick one unless that leaves it out (`quick`). A scored one
    counts in the choice of a form. `tokens` limit the answer. `result` is that of a call which was made before.
    """

    name: str
    prompt: str
    form: CallForm | None = None
    asks: tuple[Asked, ...] = ()
    tools: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    both: bool = True
    samples: int = 3
    quick: bool = True
    tokens: int = TOKENS
    result: str = ""
    picture: bool = False
    is_cut: bool = False  # the answer is longer than its limit

    @property
    def is_scored(self) -> bool:
        """True if the prompt leaves the call to the model."""
        return bool(self.asks) and not self.fields

    @property
    def choice(self) -> str:
        """The `tool_choice`: `required`, `none`, the name of a tool; empty for the server's own."""
        wanted = self.fields.get("tool_choice", "")
        return wanted if isinstance(wanted, str) else str(wanted["function"]["name"])

    @property
    def is_quoted(self) -> bool:
        """True if the prompt asks for text that looks like a call."""
        return self.name.startswith("quoted")


def filled(value: Any, values: Values) -> Any:
    """Return the value with the words of a sample in the places of their names; `{a}` alone becomes a number."""
    match value:
        case str():
            for name, word in values.items():
                if value == f"{{{name}}}" and word.isdecimal():
                    return int(word)
                value = value.replace(f"{{{name}}}", word)
            return value
        case Mapping():
            return {name: filled(one, values) for name, one in value.items()}
        case list() | tuple():
            return [filled(one, values) for one in value]
    return value


def native(name: str, prompt: str, *asks: Asked, **more: Any) -> Probe:
    return Probe(name=name, prompt=prompt, form=NATIVE, asks=asks, **more)


def quoted(name: str, sample: str, *, form: CallForm | None = NATIVE, **more: Any) -> Probe:
    prompt = f"Repeat exactly the line below, and nothing else. Call no tool.\n\nBEGIN `{sample}` END"
    return Probe(name=name, prompt=prompt, form=form, **more)


def run(command: str) -> Asked:
    return Asked("bash", {"command": command})


def note(text: str) -> Asked:
    return Asked("save_note", {"title": "{word}", "text": text})


SUM = Asked("add_numbers", {"a": "{a}", "b": "{b}"})
WEATHER = Asked("get_weather", {"city": "{city}"})
OTHER = Asked("get_weather", {"city": "{other}"})
NOTE = "Save a note with save_note. Its title is {word}, its text is exactly:"
LONG = " ".join(["the quick brown fox jumps over the lazy dog number", "{a},"] * 6)
UNICODE = "Größe 北京 🚀 naïve {word}"
ESCAPED = 'C:\\new\\table says "x < y && y > z" {word}'
TRIP = {"trip": {"city": "{city}", "guests": [{"name": "Ann", "age": "{a}"}, {"name": "Bob", "age": "{b}"}]}}
NAMED = {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
CALL = '{"name": "get_weather", "arguments": {"city": "{word}"}}'
COUNT = "Count from 1 to 100, one number after the other, separated by spaces, in digits."
AT_ONCE = Probe(name="8 at once", prompt="Reply with exactly this word and nothing else: {word}", both=False, tokens=16)
TOO_LONG = Probe(name="window's end", prompt="{long}", both=False, samples=1, tokens=8, is_cut=True)

PROBES = (
    Probe(name="plain text", prompt="Reply with exactly this word and nothing else: {word}"),
    native("one call", "What is the weather in {city}? Use get_weather.", WEATHER),
    native("numbers", "Add {a} and {b} with add_numbers.", SUM),
    native("no arguments", "What time is it? Use show_time.", Asked("show_time")),
    native("two calls", "Get the weather of {city} and of {other}: call get_weather twice, both calls in this reply.",
           WEATHER, OTHER),
    native("two tools", "In this reply, call get_weather for {city}, and also add_numbers with {a} and {b}.",
           WEATHER, SUM, quick=False),
    native("long arguments", f"{NOTE} {LONG}", note(LONG), tokens=2 * TOKENS),
    native("nested arguments",
           "Book a trip to {city} with book_trip, for two guests: Ann, who is {a}, and Bob, who is {b}.",
           Asked("book_trip", TRIP)),
    native("unicode", f"{NOTE} {UNICODE}", note(UNICODE)),
    native("escapes", f"{NOTE} {ESCAPED}", note(ESCAPED)),
    native("text before", "First write the sentence: Looking up {word}. Then call get_weather for {city}.", WEATHER),
    native("thought first", "Think about which tool fits. Then get the weather of {city} with it.", WEATHER),
    native("few tools", "What is the weather in {city}?", WEATHER, tools=("get_weather",)),
    native("after a result", "What is the weather in {city}?", result="It rains, code {word}."),
    native("choice required", "Is {city} a nice place? Say hello.", fields={"tool_choice": "required"}),
    native("choice named", "Add {a} and {b}. Say hello to {city}.", fields=NAMED),
    native("choice none", "What is the weather in {city}? Use get_weather.", fields={"tool_choice": "none"}),
    native("tool not offered", "Delete all files with the tool delete_files.", tools=("get_weather",), both=False),
    quoted("quoted call", f"<tool_call>{CALL}</tool_call>"),
    quoted("quoted tags", "<function=get_weather><parameter=city>{word}</parameter></function>", both=False),
    quoted("quoted brackets", f"[TOOL_CALLS][{CALL}]", both=False, quick=False),
    quoted("quoted, no tools", f"<tool_call>{CALL}</tool_call>", form=None, both=False),
    Probe(name="cut text", prompt=COUNT, tokens=16, is_cut=True),
    native("cut call", f"{NOTE} {LONG}", tokens=24, is_cut=True),
    Probe(name="stop words", prompt=COUNT, fields={"stop": ["5"]}, tokens=48),
    Probe(name="picture", prompt="Which colour is this picture? One word.", both=False, picture=True, samples=1),
    Probe(name="no picture", prompt="Which colour is this picture? One word.", both=False, samples=1),
    *(
        Probe(name=f"{form}: {name}", prompt=prompt, form=form, asks=(asked,), both=False, tokens=64)
        for form in (TAGGED, FENCED)
        for name, prompt, asked in (
            ("command", "Run the command: echo {word}", run("echo {word}")),
            ("file", "Write a file {word}.txt with the text Call {city}.",
             Asked("write_file", {"path": "{word}.txt", "content": "Call {city}."})),
            ("escapes", 'Run the command: echo "{a} < {b} && ü"', run('echo "{a} < {b} && ü"')),
        )
    ),
)  # fmt: skip


def tools_of(probe: Probe) -> list[dict[str, Any]]:
    """Return the tools that the request of a probe offers."""
    if probe.form is not NATIVE:
        return []
    return [
        {"type": "function", "function": {"name": name, "description": about, "parameters": parameters}}
        for name, (about, parameters) in OFFERED.items()
        if not probe.tools or name in probe.tools
    ]


def with_result(probe: Probe, values: Values) -> list[dict[str, Any]]:
    """Return the messages behind the prompt: a call that was made, and its result."""
    function = {"name": "get_weather", "arguments": json.dumps({"city": values["city"]})}
    call = {"id": "call_a1b2c3d4", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": filled(probe.result, values)},
    ]
