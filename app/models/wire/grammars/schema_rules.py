"""JSON Schema as rules of GBNF, the grammar format of llama.cpp.

The rules take what the schema takes: properties in the order of the schema, declared ones only unless it names further
ones. What has no counterpart (patterns, numeric ranges, conditions) widens the rule, up to any JSON value.
https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from parsing.arguments import properties_of, required_of, resolve, type_name

DEEPEST = 24
MOST_PARTS = 4000  # of one schema, counted each time that it refers to one
MOST_CHARACTERS = 300_000  # of a grammar
SHORTEST_PART = 16  # characters that each part counts for, whatever becomes of it
MOST_REPEATED = 256  # a longer repetition is slow to read for the server
JSON_RULES = r"""
ws ::= | " " | "\n" [ \t]{0,20}
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (pair ("," ws pair)*)? ws "}"
pair ::= string ws ":" ws value
array ::= "[" ws (value ("," ws value)*)? ws "]"
string ::= "\"" char* "\""
char ::= [^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})
number ::= integer ("." [0-9]{1,17})? ([eE] [-+]? [0-9]{1,3})?
integer ::= "-"? natural
natural ::= "0" | positive
positive ::= [1-9] [0-9]{0,18}
""".strip()
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "]": "\\]", "^": "\\x5E", "-": "\\x2D"}

Schema = Mapping[str, Any]


class TooLarge(Exception):
    """The rules of a schema are more than a server should have to read."""


class GrammarTooLarge(Exception):
    """All rules together are."""


class Rules:
    """The rules of one grammar. The same expression is one rule. `count` and `add` raise GrammarTooLarge."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._reserved = 0
        self._counted = 0

    def count(self, characters: int) -> None:
        """Count text that is read or written for the rules, also for those that are dropped again."""
        self._counted += characters
        if self._counted > MOST_CHARACTERS:
            raise GrammarTooLarge

    def reserve(self) -> str:
        """Return a new name, for a rule that refers to itself."""
        self._reserved += 1
        return f"r{self._reserved}"

    def add(self, expression: str, name: str | None = None) -> str:
        """Return the name of the rule with this expression."""
        if name is None and (known := self._names.get(expression)):
            return known
        self.count(len(expression))
        name = name or self.reserve()
        self._names.setdefault(expression, name)
        self._texts[name] = expression
        return name

    def __len__(self) -> int:
        return len(self._texts)

    def keep(self, most: int) -> None:
        """Drop the rules that were added after so many."""
        self._texts = dict(islice(self._texts.items(), most))
        self._names = {text: name for name, text in self._texts.items()}

    def __str__(self) -> str:
        return "\n".join([*(f"{name} ::= {text}" for name, text in self._texts.items()), JSON_RULES])


def literal(text: str) -> str:
    """Return a terminal that is this text."""
    return f'"{"".join(map(character, text))}"'


def character(one: str) -> str:
    """Return a character as it stands in a terminal or in a class of characters."""
    return _ESCAPES.get(one) or (one if one >= " " else f"\\x{ord(one):02X}")


def arguments_rule(rules: Rules, schema: Schema) -> str:
    """Return the rule for the arguments of a tool; any object if its schema is too large, or names no property.

    Raises GrammarTooLarge.
    """
    before = len(rules)
    try:
        return SchemaRules(rules, schema).arguments()
    except TooLarge:
        rules.keep(before)  # others refer to rules that are missing
        return "object"


class SchemaRules:
    """Expressions for the parts of one schema, `root`."""

    def __init__(self, rules: Rules, root: Schema) -> None:
        self._rules = rules
        self._root = root
        self._parts = 0
        self._referred: dict[str, str] = {}
        self._open: frozenset[str] = frozenset()  # what is referred to with no bracket in between
        self._kinds: Mapping[str, Callable[[Schema, int], str]] = {
            "object": self._object,
            "array": self._array,
            "string": _string,
            "integer": lambda schema, _: _integer(schema),
            "number": lambda _schema, _depth: "number",
            "boolean": lambda _schema, _depth: '("true" | "false")',
            "null": lambda _schema, _depth: '"null"',
        }

    def arguments(self) -> str:
        """Raises TooLarge and GrammarTooLarge."""
        return self._value({**self._root, "type": "object"}, 0)

    def _count(self, parts: int = 1) -> None:
        self._parts += parts
        if self._parts > MOST_PARTS:
            raise TooLarge
        self._rules.count(parts * SHORTEST_PART)

    def _value(self, schema: Any, depth: int) -> str:
        self._count()
        if not isinstance(schema, Mapping) or depth > DEEPEST:
            return "value"
        match schema:
            case {"$ref": str(reference)}:
                return self._reference(reference, depth)
            case {"const": constant}:
                return self._constant(constant)
            case {"enum": [*choices]} if choices:
                self._count(len(choices))
                return self._one_of(map(self._constant, choices))
            case {"allOf": [*parts], **rest}:
                return self._value(self._merged(rest, *parts), depth + 1)
            case {"anyOf": [*options], **rest} | {"oneOf": [*options], **rest} if options:
                return self._one_of(self._value(self._merged(rest, one), depth + 1) for one in options)
            case {"type": [*kinds], **rest} if kinds:
                return self._one_of(self._value({**rest, "type": kind}, depth + 1) for kind in kinds)
        inferred = "object" if properties_of(schema) else "array" if "items" in schema else ""
        kind = self._kinds.get(type_name(str(schema.get("type") or inferred)))
        opened, self._open = self._open, frozenset()
        rule = kind(schema, depth) if kind else "value"
        self._open = opened
        return rule

    def _one_of(self, expressions: Iterable[str]) -> str:
        different = dict.fromkeys(expressions)
        if "value" in different:
            return "value"
        return next(iter(different)) if len(different) == 1 else self._rules.add(" | ".join(different))

    def _reference(self, reference: str, depth: int) -> str:
        """Return the rule of what is referred to, which may refer to itself: if it is nothing else, any value."""
        if reference in self._open:  # llama.cpp refuses left recursion
            return "value"
        if (known := self._referred.get(reference)) is None:
            known = self._referred[reference] = self._rules.reserve()
            target = self._root if reference == "#" else resolve(reference, self._root)
            opened, self._open = self._open, self._open | {reference}
            self._rules.add(self._value(target, depth + 1), known)
            self._open = opened
        return known

    def _merged(self, schema: Schema, *parts: Any) -> Schema:
        """Return one schema that all of these are about."""
        self._count(len(parts))
        merged = dict(schema)
        properties, required = dict(properties_of(merged)), [*required_of(merged)]
        for part in parts:
            if isinstance(part, Mapping) and isinstance(reference := part.get("$ref"), str):
                part = resolve(reference, self._root)
            if not isinstance(part, Mapping):
                continue
            properties |= properties_of(part)
            required += required_of(part)
            merged |= part
        merged |= {"properties": properties} if properties else {}
        merged |= {"required": required} if required else {}
        return merged

    def _object(self, schema: Schema, depth: int) -> str:
        required = dict.fromkeys(required_of(schema))
        properties = {**properties_of(schema)}
        properties |= {name: {} for name in required if name not in properties}
        if len(properties) > MOST_PARTS:
            raise TooLarge
        more = schema.get("patternProperties") or schema.get(
            "additionalProperties", not isinstance(schema.get("properties"), Mapping)
        )
        more = True if more == {} else more
        if not properties and more is True:
            return "object"
        further = f'string ws ":" ws {self._value(more if isinstance(more, Mapping) else {}, depth + 1)}'
        # From the last property to the first: what follows it if it is the first one written, and if it is not.
        first = self._rules.add(f'({further} ("," ws {further})*)?') if more else ""
        after = self._rules.add(f'("," ws {further})*') if more else ""
        for name, declared in reversed(properties.items()):
            pair = f'{self._constant(name)} ws ":" ws {self._value(declared, depth + 1)}'
            optional = name not in required
            following = f"{pair} {after}".strip()
            either = f"{following} | {first}" if first else f"({following})?"
            first = self._rules.add(either if optional else following)
            later = f'"," ws {pair}'
            after = self._rules.add(f"({later})? {after}".strip() if optional else f"{later} {after}".strip())
        return self._rules.add(f'"{{" ws {first} ws "}}"')

    def _constant(self, value: Any) -> str:
        """Return a terminal for a value as JSON; lone surrogates, which no text holds, stand as escapes."""
        text = json.dumps(value, ensure_ascii=False, default=str)
        self._rules.count(len(text))
        try:
            text.encode()
        except UnicodeEncodeError:
            text = json.dumps(value, default=str)
        return literal(text)

    def _array(self, schema: Schema, depth: int) -> str:
        item = "value" if "prefixItems" in schema else self._value(schema.get("items"), depth + 1)
        least, most = _bounds(schema, "minItems", "maxItems")
        if most == 0:
            return '"[" ws "]"'
        repeated = f'("," ws {item}){{{max(least - 1, 0)},{most - 1 if most else ""}}}'
        items = item if most == 1 else f"{item} {repeated}"
        return self._rules.add(f'"[" ws {items if least else f"({items})?"} ws "]"')


def _string(schema: Schema, _depth: int) -> str:
    least, most = _bounds(schema, "minLength", "maxLength")
    return f'"\\"" char{{{least},{"" if most is None else most}}} "\\""' if least or most is not None else "string"


def _bounds(schema: Schema, lower: str, upper: str) -> tuple[int, int | None]:
    """Return the bounds of a repetition, as far as they are small."""
    least, most = schema.get(lower), schema.get(upper)
    least = least if isinstance(least, int) and 0 < least <= MOST_REPEATED else 0
    return least, most if isinstance(most, int) and least <= most <= MOST_REPEATED else None


def _integer(schema: Schema) -> str:
    minimum = schema.get("minimum")
    least = minimum if isinstance(minimum, int | float) else -1
    return "positive" if least >= 1 else "natural" if least >= 0 else "integer"
