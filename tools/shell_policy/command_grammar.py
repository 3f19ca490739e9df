"""Every command and word of a shell text, by tree-sitter's bash grammar; what the shell would expand is marked.

Unlike plain_commands, which reads nothing but plain texts, this reader follows the whole language as far as it goes and
never decides that a text is harmless: for rules that deny or ask.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from tools.base.patterns import lazy_pattern
from tools.shell_policy.plain_commands import Words, bash_language

if TYPE_CHECKING:
    from tree_sitter import Node

UNREAD = "\0"  # in a word: a part that only the shell can know
_EXPANDED = lazy_pattern(r"\\(.)|([*?\[{}~])", re.DOTALL)
_ESCAPED = lazy_pattern(r'\\([$`"\\\n])')


class GrammarReading(Struct, frozen=True):
    """`commands`: words of each, without redirects; `words`: all words; `texts`: here-documents and here-strings."""

    commands: tuple[Words, ...]
    words: Words
    texts: Words
    broken: bool


def read_by_grammar(text: str) -> GrammarReading:
    """Read any text. Total; what it cannot parse is `broken`."""
    from tree_sitter import Parser  # 13 ms and 3 MB, only when commands are parsed

    data = text.encode("utf-8", "replace")
    root = Parser(bash_language()).parse(data).root_node
    commands, words, texts = list[Words](), list[str](), list[str]()
    for node in _nodes(root):
        match node.type:
            case "command":
                commands.append(tuple(_words_of(node)))
            case "declaration_command" | "unset_command":
                commands.append(tuple(_written(child) for child in node.children))
            case "heredoc_body":
                texts.append(_source(node))
            case "herestring_redirect":
                texts += map(_written, node.named_children)
            case "file_redirect" | "variable_assignment" | "for_statement" | "case_statement":
                words += map(_written, node.named_children)
            case "test_command" | "case_item" | "array":
                words += [_written(child) for child in _nodes(node) if _is_word(child)]
    words += [word for command in commands for word in command]
    return GrammarReading(tuple(commands), tuple(words), tuple(texts), root.has_error)


def _nodes(root: Node) -> Iterator[Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)


def _words_of(command: Node) -> Iterator[str]:
    """Return assignments before the name, the name and the arguments."""
    for child in command.children:
        if child.type == "command_name":
            yield "".join(map(_written, child.children))
        elif not child.type.endswith("_redirect") and child.type != "comment":
            yield _written(child)


def _is_word(node: Node) -> bool:
    return node.type in ("word", "raw_string", "string", "concatenation", "number")


def _written(node: Node) -> str:
    """Return a word as the shell would pass it on, with UNREAD for what it would expand."""
    match node.type:
        case "word" | "number" | "regex" | "extglob_pattern":
            return _EXPANDED.sub(lambda found: found[1] or UNREAD, _source(node))
        case "raw_string":
            return _source(node)[1:-1]
        case "string":
            return _joined(node.named_children, node)
        case "string_content":
            return _ESCAPED.sub(lambda found: "" if found[1] == "\n" else found[1], _source(node))
        case "concatenation":
            return "".join(map(_written, node.children))
        case "variable_assignment":
            return "".join(
                _source(child) if child.type in ("variable_name", "=", "+=") else _written(child)
                for child in node.children
            )
        case "variable_name" | "special_variable_name" | "test_operator" | "file_descriptor":
            return _source(node)
    return _source(node) if not node.named_children and node.type.isalpha() else UNREAD


def _joined(parts: Sequence[Node], string: Node) -> str:
    """Return a double-quoted string; blanks between its parts are in none of them."""
    written, at = [], string.start_byte + 1
    for part in parts:
        written += [" " * max(0, part.start_byte - at), _written(part)]
        at = part.end_byte
    return "".join(written)


def _source(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
