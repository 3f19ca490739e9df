"""Calls whose arguments are raw text between tags: function/parameter, invoke/parameter, key/value pairs."""

from __future__ import annotations

import re

from parsing.arguments import ANY_JSON, coerce_text, properties_of, unescaped
from parsing.events import Arguments
from parsing.literals import Unreadable, loads
from parsing.matching import NEED_MORE, NO_MATCH, Groups, groups_at
from parsing.readers.elements import nested_value, repeated_value
from parsing.readers.markup import Framing, Markup, unframed
from parsing.shapes import Misfit, arguments_object, call_usage
from parsing.sink import CUT, Reader, Sink

_QUOTED = 80
_REMAINDER = (
    "The call of {name} was not run: {text!r} stands in it outside of any parameter. Send the call again with its "
    "parameters alone, each in its own tags."
)
_WORDS_BEHIND = (
    "The call of {name} was not run: words stand behind the closing tag of {key!r}. Send the call again without them."
)
_OTHER_CLOSER = "The call of {name} ends with {tag}, which is not its closing tag, so it was not run. {usage}"
_CLOSER = re.compile(r"\s*(</[\w.:-]{1,64}\s?>)\s*")
PACKED = ("arguments", "input", "parameters", "args")


class TaggedCall(Reader):
    """One call: values between tags until the call's own end."""

    def __init__(self, sink: Sink, markup: Markup, name: str, *, whole_at_end: bool = False) -> None:
        super().__init__(sink)
        self._whole_at_end = whole_at_end
        self._markup = markup
        self._name = name
        self._schema = sink.schema(name)
        self._key: str | None = None
        self._kind: str | None = None
        self._framing = markup.framing
        self._loose: list[str] = []
        self._unclosed = ""  # a parameter behind whose closing tag words stand
        self._arguments: Arguments = {}
        self._texts: dict[str, list[str]] = {}  # of each parameter: an array may be written as several
        self._start = 0  # where in `_parts` the open value begins
        self._mark = 0
        self._depth = 0  # calls that are quoted in the open value
        self.streams = True
        sink.open(name)

    def read(self, buf: str, pos: int, last: bool) -> int:
        self._mark = pos
        while pos < len(buf) and not self.done:
            step = self._between(buf, pos, last) if self._key is None else self._within(buf, pos, last)
            if step < 0:
                break
            pos = step
        self._keep(buf, pos)
        self.stop = self._markup.first if self._key is not None and not self.done else ""
        return pos

    def _keep(self, buf: str, pos: int) -> None:
        if pos > self._mark:
            piece = buf[self._mark : pos]
            self._mark = pos
            self._parts.append(piece)
            self._sink.delta(piece)

    def cut(self) -> None:
        if self._key is None and self._sink.is_whole(self._whole_at_end):
            self._finish()
        else:
            tag = self._other_closer()
            usage = call_usage(self._name)
            reason = _OTHER_CLOSER.format(name=self._name, tag=tag, usage=usage) if tag else CUT
            self._sink.bad("".join(self._parts), reason)

    def _other_closer(self) -> str:
        """Return the tag that closes the call in place of its own; "" if there is none: the message was cut."""
        behind = "".join(self._loose)
        if self._key is not None:
            value = "".join(self._parts[self._start :])
            found = self._markup.shutting.search(value)
            behind = value[found.end() :] if found else ""
        tag = _CLOSER.fullmatch(behind)
        return tag[1] if tag else ""

    def _between(self, buf: str, pos: int, last: bool) -> int:
        end, groups = groups_at(self._markup.between, buf, pos, last)
        if groups is None:
            return self._stray(buf, pos, end)
        if groups.get("end") is not None or groups.get("next") is not None:
            self._keep(buf, end)
            self._finish()
            return end
        self._key = self._named(groups.get("key") or "")
        self._kind = groups.get("kind")
        self._framing = self._markup.framing
        if (string := groups.get("string")) is not None:
            self._kind = "string" if string.lower() == "true" else ANY_JSON
            self._framing = Framing.NONE
        self._keep(buf, end)
        self._start = len(self._parts)
        self._depth = 0
        return end

    def _stray(self, buf: str, pos: int, state: int) -> int:
        """Words between the tags: a JSON body, or nothing that matters."""
        if state == NEED_MORE:
            return NEED_MORE
        found = self._markup.start.search(buf, pos + 1)
        end = found.start() if found else len(buf)
        self._loose.append(buf[pos:end])
        return end

    def _within(self, buf: str, pos: int, last: bool) -> int:
        at = buf.find(self._markup.first, pos)
        if at < 0:
            return len(buf)
        if self._markup.lead and (buf[at - 1 : at] or self._parts[-1][-1:]) != self._markup.lead:
            return at + 1
        if (step := self._quoted(buf, at, last)) != NO_MATCH:
            return (at if at > pos else NEED_MORE) if step == NEED_MORE else step
        pattern = self._markup.final if last else self._markup.closing
        end, groups = groups_at(pattern, buf, at, last)
        if end == NEED_MORE:
            return at if at > pos else NEED_MORE
        if groups is None or (groups.get("sibling") is not None and not self._follows(groups)):
            return at + 1
        self._keep(buf, at)
        if end > at:
            self._close(self._framing)
        else:  # its tag was forgotten, or stands in the value, with words behind it
            found = self._markup.shutting.search("".join(self._parts[self._start :]))
            self._unclosed = self._unclosed or (self._key or "" if found else "")
            self._close(Framing.EACH)
        return end

    def _quoted(self, buf: str, at: int, last: bool) -> int:
        """Pass a call that is quoted in a value. Return its end, NEED_MORE, or NO_MATCH."""
        if self._markup.quoted is None:
            return NO_MATCH
        end, groups = groups_at(self._markup.quoted, buf, at, last)
        if groups is None or (groups["inner"] is None and not self._depth):
            return NEED_MORE if end == NEED_MORE and not last else (at + 1 if self._depth else NO_MATCH)
        self._depth += 1 if groups["inner"] is not None else -1
        return end

    def _named(self, written: str) -> str:
        """The parameter that a tag names: as it is written, or without its escapes."""
        key = written.strip().strip("\"'")
        return key if key in properties_of(self._schema) else unescaped(key)

    def _follows(self, groups: Groups) -> bool:
        """Return whether an opening tag inside a value begins the next parameter, the closing tag being forgotten."""
        key = self._named(groups.get("key") or "")
        return key in properties_of(self._schema) and key != self._key and key not in self._arguments

    def _close(self, framing: Framing) -> None:
        key, self._key = self._key or "", None
        text = unframed("".join(self._parts[self._start :]), framing)
        if not key:
            self._loose.append(text.strip() or '""')  # a value without a name is a remainder
            return
        self._texts.setdefault(key, []).append(text)
        self._arguments[key] = self._value(text, key)

    def _value(self, text: str, key: str) -> object:
        value = coerce_text(text, self._schema, key, self._kind)
        if len(self._texts[key]) > 1 and not isinstance(value, list):
            return repeated_value(self._texts[key], value, self._schema, key)
        if value is not text or not text.lstrip().startswith("<"):
            return value
        return nested_value(text, self._schema, key)

    def _finish(self) -> None:
        self.done = True
        try:
            arguments = self._packed()
        except Misfit as error:
            self._sink.bad("".join(self._parts), str(error))
            return
        self._sink.call(self._name, arguments)

    def _remainder(self) -> str:
        """The words between the tags; closing tags too many are none, nor is space that is written out."""
        loose = "".join(self._loose)
        return self._markup.passed.sub("", loose).strip() if loose else ""

    def _packed(self) -> Arguments:
        """The arguments; taken out of a single parameter that packs them all, or of a JSON body."""
        if self._unclosed:
            raise Misfit(_WORDS_BEHIND.format(name=self._name, key=self._unclosed))
        loose = self._remainder()
        if loose and (self._arguments or not loose.startswith("{")):
            raise Misfit(_REMAINDER.format(name=self._name, text=loose[:_QUOTED]))
        if loose:
            try:
                return arguments_object(loads(loose), self._schema)
            except Unreadable as error:
                raise Misfit(f"This call's JSON cannot be read: {error}. Send the call again.") from error
        if len(self._arguments) == 1:
            [(key, value)] = self._arguments.items()
            if key in PACKED and key not in properties_of(self._schema):
                packed = json_or_text(value) if isinstance(value, str) else value
                return packed if isinstance(packed, dict) else self._arguments
        return self._arguments


def json_or_text(text: str) -> object:
    """The JSON value in `text`, or the text when it is none."""
    try:
        return loads(text.strip())
    except Unreadable:
        return text


class EmptyCall(Reader):
    """A call that is complete with its opener: an empty element."""

    def __init__(self, sink: Sink, name: str, arguments: Arguments | None = None) -> None:
        super().__init__(sink)
        self.done = True
        sink.call(name, arguments or {})

    def read(self, buf: str, pos: int, last: bool) -> int:
        return pos

    def cut(self) -> None:
        """Nothing can be missing."""
