"""The files of a job's folder, shared by its supervisor and the server, and how they are written.

Imported by every supervisor, so that it stays light: the standard library, and little of that.

    job.json       the request, and the state of the follow-up; written by the server
    command.json   what the supervisor is to start; written once, by the server
    script         the text of the command
    lock           held by the supervisor while it lives: the kernel releases it, whatever ends the supervisor
    state.json     how it goes; written by the supervisor, and by the server once the supervisor is gone
    output         counts, head and last part of what the command wrote (`OutputFile`)
    supervisor.log what went wrong in the supervisor, if anything did
"""

from __future__ import annotations

import json
import os
import struct

JOB, COMMAND, SCRIPT, LOCK = "job.json", "command.json", "script", "lock"
STATE, OUTPUT, LOG = "state.json", "output", "supervisor.log"
SCRIPT_FD = 3  # where the command finds its script
LOCK_FD = 3  # where the supervisor finds its lock
HANDED_FD = 4  # where the supervisor, and then the command's proxy, finds what it is handed
READY = b"ready\n"  # on the supervisor's stdout: state.json has the result of the start

BLOCK = 1 << 16
HEAD = 1 << 20  # bytes from the beginning that are kept
TAIL = 1 << 20  # bytes before the end that are kept
RING = TAIL + BLOCK  # while a block is being written, the whole tail can still be read
COUNTS = struct.Struct("<QQ")  # bytes and lines so far, in front of everything


def write_json(path: str, fields: dict[str, object]) -> None:
    """Write atomically: a reader sees the old file or the new one."""
    fresh = f"{path}.new"
    made = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(made, "w", encoding="ascii") as file:  # noqa: PTH123 (pathlib would cost a supervisor its start)
        json.dump(fields, file)
    os.replace(fresh, path)  # noqa: PTH105


def write_over(path: str, fields: dict[str, object]) -> None:
    """The same in the place of the old file, which must be the shorter one: a disk that is full has room for that."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    os.pwrite(file, json.dumps(fields).encode("ascii"), 0)
    os.close(file)


def place(position: int) -> int:
    """Return the position in the file of the byte `position` of the output."""
    return COUNTS.size + (position if position < HEAD else HEAD + (position - HEAD) % RING)


def stretch(position: int) -> int:
    """Return the number of bytes from `position` on that are contiguous in the file."""
    return HEAD - position if position < HEAD else RING - (position - HEAD) % RING


class OutputFile:
    """The writer of an output that may have any length, in a file of 2.1 MiB at most.

    A disk that is full does not end the job: what cannot be written is counted, and `complaint` has the reason.
    """

    def __init__(self, path: str) -> None:
        self.complaint: str | None = None
        self._bytes = self._newlines = 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._count(b"\n")

    def add(self, block: bytes) -> None:
        """Take at most BLOCK bytes."""
        begin = 0
        while begin < len(block):
            position = self._bytes + begin
            piece = block[begin : begin + stretch(position)]
            self._write(piece, place(position))
            begin += len(piece)
        self._bytes += len(block)
        self._newlines += block.count(b"\n")
        self._count(block)

    def _count(self, block: bytes) -> None:
        # The counts come after the bytes, so that a reader never believes in what is not there yet.
        unfinished = 0 if block.endswith(b"\n") else 1
        self._write(COUNTS.pack(self._bytes, self._newlines + unfinished), 0)

    def _write(self, data: bytes, at: int) -> None:
        try:
            os.pwrite(self._file, data, at)
        except OSError as error:
            self.complaint = f"output could not be kept: {error.strerror}"
