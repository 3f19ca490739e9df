"""Files of a message: `@path` in its text attaches the file, as does the whole path of a picture; the text stays."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from urllib.parse import unquote

from routes.terminal.event_client import Message
from routes.terminal.rendering.figures import size
from routes.terminal.view import printable
from routes.texts import text
from tools.base.patterns import lazy_pattern

MOST_BYTES = 16 << 20  # of a file; the server may take less
MOST_OFFERED = 200
_NAMED = lazy_pattern(r'(?<!\S)@(?:"([^"\n]+)"|(\S*[^\s.,;:!?)]))')
PICTURES = ("png", "jpg", "jpeg", "gif", "webp")
# As terminals write the path of a file that is dropped on them: quoted, with `\` before blanks, or as a URL.
_PICTURE = lazy_pattern(
    r"""(?<!\S)(?:(?P<quote>["'])(?P<quoted>(?:~?/|file://)[^\n]+?)(?P=quote)|(?P<bare>(?:~?/|file://)(?:\\.|[^\s\\])+))"""
)
_ESCAPED = lazy_pattern(r"\\(.)")


def with_files(message: str) -> tuple[Message, list[str]]:
    """The message with the files that it names, and what is wrong with these. A name without a file is a word."""
    parts, problems = list[dict[str, str]](), list[str]()
    for path in dict.fromkeys((*_named(message), *_pictures(message))):
        try:
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a pipe would be waited for
                about = os.fstat(file.fileno())
                if not S_ISREG(about.st_mode):
                    continue
                data = file.read(MOST_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError):
            continue
        except OSError as error:
            problems.append(text("terminal.file.unreadable", name=path.name, reason=os.strerror(error.errno or 0)))
            continue
        if len(data) > MOST_BYTES:
            problems.append(text("terminal.file.too_long", name=path.name, limit=f"{MOST_BYTES >> 20} MB"))
            continue
        parts.append({"type": "file", "data": base64.b64encode(data).decode(), "name": path.name})
    return ([{"type": "text", "text": message}, *parts] if parts else message), problems


def _named(message: str) -> Iterator[Path]:
    for quoted, bare in _NAMED.findall(message):
        yield Path.cwd() / Path(quoted or bare).expanduser()


def _pictures(message: str) -> Iterator[Path]:
    for found in _PICTURE.finditer(message):
        written = found["quoted"] or _ESCAPED.sub(r"\1", found["bare"].rstrip(".,;:!?)"))
        if written.startswith("file://"):
            written = unquote(f"/{written.removeprefix('file://').partition('/')[2]}")
        if written.lower().endswith(tuple(f".{kind}" for kind in PICTURES)):
            yield Path(written).expanduser()


def attached(message: Message) -> list[str]:
    """A line for each file of the message: its text may have been pasted, with a name that was not noticed."""
    files = [part for part in message if part["type"] == "file"] if isinstance(message, list) else []
    lengths = (len(part["data"]) * 3 // 4 - part["data"][-2:].count("=") for part in files)
    return [
        text(
            "terminal.file.picture" if part["name"].lower().endswith(PICTURES) else "terminal.file.attached",
            name=printable(part["name"]),
            size=size(length),
        )
        for part, length in zip(files, lengths, strict=True)
    ]


def paths_for(word: str) -> list[str]:
    """The completions of `@begin` to a path, folders with a slash."""
    begun = word.removeprefix("@")
    folder, _, name = begun.rpartition("/")
    place = Path(f"{folder}/").expanduser() if folder or begun.startswith("/") else Path()
    found = list[str]()
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.name.startswith(name) and (name or not entry.name.startswith(".")) and " " not in entry.name:
                    slash = "/" if entry.is_dir() else ""
                    found.append(f"@{begun[: len(begun) - len(name)]}{entry.name}{slash}")
                if len(found) >= MOST_OFFERED:
                    break
    except OSError:
        return []
    return sorted(found)
