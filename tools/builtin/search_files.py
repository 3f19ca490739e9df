"""The tool `search_files`: passages of files and documents, found by words and by meaning, to be cited."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from parsing import Arguments
from tools.base.outcome import Progress, Result, ToolFailed, required
from tools.base.workspace import Folder
from tools.tool import Context

FEW, MANY = 5, 20
_NOTES = 400  # characters of room for the notes
_OFF = "No folder is searched in this run. Look with list_files and read_file."
_NOTHING = "Nothing was found in {searched}. Try other words, or the language of the files."


async def search_files(arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
    """Return passages, each below its place."""
    folder: Folder = arguments["folder"]
    limit = min(arguments.get("limit", FEW), MANY)
    found = await required(context.knowledge, _OFF).search(arguments["query"], folder.parts, limit)
    blocks, room = list[str](), context.result_characters - _NOTES
    for one in found.passages:
        # Its lines are indented, so that no text can look like another place.
        block = "\n".join((one.place, *(f"  {line}" for line in one.text.split("\n"))))
        if (room := room - len(block) - 2) < 0:
            break
        blocks.append(block)
    notes = []
    if found.left_out:
        notes.append(f"[{found.left_out} left out: changed since they were indexed, or not to be read.]")
    if found.pending:
        notes.append(f"[{found.pending} files are not indexed yet: search again later.]")
    if not blocks:
        raise ToolFailed("\n".join((_NOTHING.format(searched=found.searched), *notes)))
    text = "\n\n".join((*blocks, *notes))
    yield Result(ok=True, text=text, untrusted=found.untrusted, labels=found.labels)
