"""What hostile bytes are made of: each function returns another one for each state of `random.Random`."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from typing import Any

from tests import ROOT

Make = Callable[[random.Random, int], str]
"""Text of about so many characters."""

# What begins something, in dialects, JSON, XML, Markdown, templates and URLs.
OPENERS = (
    *("<tool", "<think>", "<|tool", "</tool", '<tool"', "<", "\n<tool", '<invoke name="', "<tool_call>", "<function="),
    *("<parameter=x>", "[TOOL_CALLS]", "[", "{", '{"a":', "[[", '"', "\\", '\\"', "\\u", "```", "```json\n", "~~~\n"),
    *("<|python_tag|>", "<|channel|>", "<|start|>", "<｜tool▁calls▁begin｜>", "<|tool_calls_section_begin|>", "("),
    *("bash(", 'bash(command="', "print(", "#!bg ", "&", "&#", "&amp;", "<!--", "<![CDATA[", "<?", "%", "%u", "\x1b["),
    *("\x1b]8;;", "$", "$$", "\\(", "\\begin{a}", "*", "**", "_", "~~", "`", "``", "> ", "- ", "1. ", "# ", "|", "|-"),
    *("![", "[a](", "[^1]", "[^1]: ", "<a ", "<div>", "<b>*", "http://", "www.", "a@", "\n", "\r", "\r\n", "\t", " "),
    *("\n\n", "---\n", "===\n", "word ", "a", "é", "ä\n", "data: ", "event: ", "id: ", ":", ",", "/", "../", ";", "="),
)
CHARACTERS = (
    *("\0", "\x07", "\x1b", "\x7f", "\x85", "\u2028", "\u2029", "\ufeff", "\u202e", "\u2066", "\u200b", "\u0301"),
    *("\U000e0041", "\U0001f468\u200d", "\ufdfa", "ß", "İ", "ﬁ", "Ǆ", "\u1100", "한", "日", "\U0010ffff", "\ufffe"),
)
NUMBERS = ("1" * 5_000, "-0", "1e400", "1e-400", "9007199254740993", "0.1" + "0" * 3_000, "1E+9", "-1")
BOUNDARIES: tuple[Any, ...] = (
    0,
    -1,
    1,
    2**31,
    2**53 + 1,
    2**63,
    2**64,
    10**40,
    -(2**63),
    1e308,
    5e-324,
    True,
    None,
    "",
    [],
    {},
)
# Each with text that it needs exponential, or cubic, time for.
PATTERNS = (
    ("(a+)+$", "a"), ("(a|a)*$", "a"), ("(a|aa)+$", "a"), ("(.*)*x", "a"), ("(a*)*b", "a"), ("^(\\w+\\s?)*$", "a "),
    ("(.*a){20}$", "a"), ("a*a*a*a*a*a*b", "a"), ("([a-z]+)*=", "a"), ("(?:(?:(?:a?)+)+)+b", "a"), ("(x+x+)+y", "x"),
    ("(?=(a+))*b", "a"), ("\\s+$", " "), ("[^\\n]*\\n?$|.*b", "a"), ("(a{1,500}){1,500}b", "a"), (".*.*.*=.*", "="),
    ("(" * 500 + "a" + ")" * 500, "a"), ("a{1,1000}{1,1000}", "a"), ("|".join("a" * n for n in range(1, 300)), "a"),
    ("[\U00010000-\U0010ffff]+" * 50, "a"), ("\\p{L}+\\p{L}+\\p{L}+$", "a"), ("(?i)(ſ|s)+$", "s"), ("(?<=a*)b", "a"),
    ("(", "a"), ("[", "a"), ("*", "a"), ("\\", "a"), ("(?P<n>a)(?P=n)+$", "a"),
)  # fmt: skip


@cache
def dialect_cases() -> tuple[str, ...]:
    """Real calls, one of each form that is known."""
    lines = (ROOT / "fixtures" / "dialects" / "cases.jsonl").read_text().splitlines()
    return tuple(json.loads(line)["text"] for line in lines)


def size(rng: random.Random, most: int) -> int:
    """Small ones as often as large ones."""
    return int(most ** rng.uniform(0.1, 1.0))


def repeated(piece: str, length: int) -> str:
    return (piece * (length // max(len(piece), 1) + 1))[:length]


def openers(rng: random.Random, length: int) -> str:
    """One beginning without an end, or several in turn."""
    some = "".join(rng.choices(OPENERS, k=rng.choice((1, 1, 1, 2, 3, 7))))
    return repeated(some, length)


def nested(rng: random.Random, length: int) -> str:
    begin, end = rng.choice((("[", "]"), ('{"a":', "}"), ("<b>", "</b>"), ("(", ")"), ("> ", "\n"), ("**", "**")))
    depth = length // (len(begin) + len(end)) + 1
    return begin * depth + rng.choice(("", "1", "x")) + end * rng.choice((depth, depth, 0, depth - 1))


def unicode(rng: random.Random, length: int) -> str:
    return repeated("".join(rng.choices(CHARACTERS, k=rng.choice((1, 1, 2, 5)))), length)


def lines(rng: random.Random, length: int) -> str:
    """Distinct words in lines of all lengths."""
    out, left = list[str](), length
    width = rng.choice((1, 5, 80, 2_000))
    while left > 0:
        line = "".join(rng.choices("abcdefgh 0123456789.,/_-", k=width))
        out.append(line)
        left -= width + 1
    return rng.choice(("\n", "\r\n", "\n\n", " ")).join(out)


def a_call(rng: random.Random, length: int) -> str:
    """A real call: whole, cut, repeated, doubled, or around something large."""
    text = rng.choice(dialect_cases())
    at = rng.randrange(len(text) + 1)
    inner = rng.choice((openers, nested, unicode, lines))(rng, length)
    return rng.choice(
        (
            lambda: text,
            lambda: repeated(text[:at], length),
            lambda: repeated(text, length),
            lambda: repeated(text[at:], length),
            lambda: text[:at] + inner + text[at:],
            lambda: inner + text,
            lambda: repeated(text[:at] + rng.choice(OPENERS), length),
        )
    )()


def markdown(rng: random.Random, length: int) -> str:
    """Tables, links, footnotes, lists, mathematics and code, in numbers."""
    row = rng.choice(
        (
            lambda n: f"[{n}]: http://x/{n}\n",
            lambda n: f"text[^{n}]\n\n[^{n}]: note\n",
            lambda n: "| a | b |\n|---|---|\n" if n == 0 else f"| {n} | `x` |\n",
            lambda n: "  " * n + "- item\n",
            lambda n: "> " * n + "q\n",
            lambda n: f"[a{n}](b{n} 'c') ![x](data:image/png;base64,{n})",
            lambda n: "*" * (n % 7) + "a" + "_" * (n % 5),
            lambda n: f"$x_{n}$ $$\\frac{{{n}}}{{2}}$$",
            lambda n: "`" * (n % 200 + 1),
            lambda n: "<details>" + f"<p title={n}>",
            lambda n: "|" * 300 + "\n" + "|-" * 300 + "\n",
            lambda n: "[" * (n % 90) + "x" + "](y)" * (n % 90),
            lambda n: f"{n}. x\n   ```py\n   def f{n}(): pass\n   ```\n",
        )
    )
    out, number, total = list[str](), 0, 0
    while total < length:
        out.append(row(number))
        total, number = total + len(out[-1]), number + 1
    return "".join(out)[:length]


def json_text(rng: random.Random, length: int) -> str:
    """JSON that is large in one direction, or that is none."""
    return rng.choice(
        (
            lambda: "{" + ",".join(f'"k{n}":{n}' for n in range(length // 12)) + "}",
            lambda: "[" + ",".join(["[]"] * (length // 3)) + "]",
            lambda: "[" + ",".join(["{}"] * (length // 3)) + "]",
            lambda: "[" + ",".join(rng.choices(NUMBERS, k=length // 1_000 + 1)) + "]",
            lambda: '"' + repeated("\\ud800", length) + '"',
            lambda: '"' + repeated("\\u0000", length) + '"',
            lambda: '{"a":' * min(length // 6, 100_000) + "1" + "}" * min(length // 6, 100_000),
            lambda: "[" * length,
            lambda: json.dumps(value(rng, length)),
            lambda: "{" + ",".join(['"a":1'] * (length // 6)) + "}",
            lambda: '["' + '","'.join(str(n) for n in range(length // 8)) + '"]',
        )
    )()


TEXTS: tuple[Make, ...] = (openers, nested, unicode, lines, a_call, markdown, json_text)


def text(rng: random.Random, most: int) -> str:
    """Any of these, or some behind each other."""
    length = size(rng, most)
    count = rng.choice((1, 1, 2, 4))
    made = "".join(rng.choice(TEXTS)(rng, length // count + 1) for _ in range(count))
    return made[: most * 2]


def value(rng: random.Random, most: int, depth: int = 3) -> Any:
    """Any JSON value."""
    kind = rng.randrange(8 if depth else 3)
    if kind <= 2:
        return rng.choice((*BOUNDARIES, text(rng, most), rng.choice(CHARACTERS), "x"))
    if kind <= 4:
        return {key(rng): value(rng, most // 4 + 1, depth - 1) for _ in range(rng.randrange(6))}
    if kind == 5:
        return [value(rng, 30, 0)] * size(rng, most // 8 + 2)
    if kind == 6:
        return {f"k{n}": rng.choice(BOUNDARIES[:4]) for n in range(size(rng, most // 8 + 2))}
    return deep(rng, size(rng, min(most, 900)))


def deep(rng: random.Random, depth: int) -> Any:
    made: Any = rng.choice(BOUNDARIES)
    is_list = rng.random() < 0.5
    for _ in range(depth):
        made = [made] if is_list else {"a": made}
    return made


def key(rng: random.Random) -> str:
    return rng.choice(("a", "type", "name", "id", "$ref", "__proto__", "", "\0", "text", "path", repeated("k", 500)))


def schema(rng: random.Random, most: int) -> dict[str, Any]:
    """A schema that explodes, goes round, or is none."""
    many = size(rng, most // 30 + 2)
    pattern, _ = rng.choice(PATTERNS)
    any_of = rng.choice(("anyOf", "oneOf", "allOf"))
    made: Any = rng.choice(
        (
            lambda: {"$ref": "#"},
            lambda: {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
            lambda: {"type": "object", "properties": {"text": {"type": "string", "pattern": pattern}}},
            lambda: {"type": "object", "patternProperties": {pattern: {"type": "string"}}},
            lambda: _doubling(rng, any_of, rng.choice((5, 12, 20, 40))),
            lambda: {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(many)}},
            lambda: {"type": "object", "properties": {"text": {any_of: [{"const": n} for n in range(many)]}}},
            lambda: {"type": "object", "properties": {"text": {"enum": list(range(many))}}},
            lambda: {"type": "object", "required": [f"p{n}" for n in range(many)]},
            lambda: {"type": "object", "properties": {"text": _nested_schema(min(many, 5_000))}},
            lambda: {"type": "object", "properties": {"text": {"type": "array", "uniqueItems": True}}},
            lambda: {"type": "object", "properties": {"text": {"minLength": 10**30, "multipleOf": 1e-300}}},
            lambda: {"type": "object", "description": text(rng, most), "title": text(rng, 300)},
            lambda: {"type": "object", "properties": {text(rng, 300): {"description": text(rng, most)}}},
            lambda: {"type": "object", "unevaluatedProperties": False, any_of: [{"$ref": "#/$defs/x"}] * 50,
                     "$defs": {"x": {any_of: [{"properties": {f"p{n}": {}}} for n in range(min(many, 300))]}}},
            lambda: value(rng, most),
        )
    )()  # fmt: skip
    return made  # type: ignore[no-any-return]


def _doubling(rng: random.Random, any_of: str, levels: int) -> dict[str, Any]:
    """Each definition refers to the next one twice."""
    defs: dict[str, Any] = {f"d{n}": {any_of: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    defs[f"d{levels}"] = {"type": rng.choice(("string", "number"))}
    return {"type": "object", "properties": {"text": {"$ref": "#/$defs/d0"}}, "$defs": defs}


def _nested_schema(depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        made = {"type": "object", "properties": {"a": made}}
    return made


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Some bytes turned, cut, doubled or put in."""
    out = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 3, 20))):
        if not out:
            break
        at = rng.randrange(len(out))
        end = min(len(out), at + size(rng, len(out)))
        match rng.randrange(5):
            case 0:
                out[at] = rng.randrange(256)
            case 1:
                del out[at:end]
            case 2:
                out[at:at] = out[at:end]
            case 3:
                out[at:at] = rng.choice(
                    (b"\0", b"\xff", b"\xed\xa0\x80", b'"', b"\\", b"{", b"[", b"\n", b"\xef\xbb\xbf")
                )
            case 4:
                del out[at:]
    return bytes(out)


def dumped(made: Any) -> bytes:
    """JSON with lone surrogates escaped."""
    try:
        return json.dumps(made).encode()
    except RecursionError:
        return b"{}"
