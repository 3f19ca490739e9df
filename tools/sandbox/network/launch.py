"""Starts a command's proxy, then becomes the command: launch.py RULES WORD...

Run as a script outside of the sandbox, without `site`. The proxy is a process of its own: what the box sends cannot
hold up the server, and a job keeps its network when the server is started again. It ends with the sandbox, whose
process this one becomes, and then reports on its standard output what was reached and refused.

The secrets of a call are read from a file without a name, by the proxy's process alone: no other account of the machine
can look into it, and it leaves no core.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

CHANNEL = "DRAGOMAN_CHANNEL"  # in the environment: the file on which `inside/listen.py` hands out its socket
HANDED = "DRAGOMAN_HANDED"  # in the environment: the file from which the proxy's secrets are read
TRUST = "@authorities"  # a word that becomes the number of a file: the authorities that the box is to trust
_PR_SET_DUMPABLE = 4


def main(rules: str, words: list[str]) -> None:
    """Never returns. Raises OSError."""
    ours, theirs = socket.socketpair()
    sandbox = os.pidfd_open(os.getpid())
    handed = int(os.environ.pop(HANDED, "-1"))
    trusted = os.memfd_create("authorities") if handed >= 0 else -1
    if os.fork() == 0:
        # Twice, so that it is no child of the sandbox, which knows nothing of it.
        secrets = _taken(handed, trusted) if handed >= 0 else b""
        if os.fork() == 0:
            _serve(json.loads(rules), ours, sandbox, secrets)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(125)  # it has said why
    os.close(sandbox)
    ours.close()
    if handed >= 0:
        os.close(handed)
        words = [_opened_again(trusted) if word == TRUST else word for word in words]
    os.set_inheritable(theirs.fileno(), True)
    os.environ[CHANNEL] = str(theirs.fileno())
    os.execv(words[0], words)


def _taken(handed: int, trusted: int) -> bytes:
    """Read the secrets, leaving none in the file, and write the authorities that the box trusts. Raises OSError."""
    import ctypes
    import resource

    # Before anything is read: neither a debugger nor /proc can then look into this process, nor into those it forks.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with os.fdopen(handed, "r+b") as file:
        secrets = file.read()
        file.truncate(0)
    known = json.loads(secrets)
    with os.fdopen(trusted, "wb") as bundle:
        for path in known["authorities"]:
            with open(path, "rb") as one:  # noqa: PTH123 - pathlib would cost each command its start
                bundle.write(one.read() + b"\n")
        bundle.write(known["certificate"].encode())
    return secrets


def _opened_again(file: int) -> str:
    """The number of a new opening, read from its beginning: each mount reads one to its end."""
    again = os.open(f"/proc/self/fd/{file}", os.O_RDONLY)
    os.set_inheritable(again, True)
    return str(again)


def _serve(rules: dict[str, list[str]], ours: socket.socket, sandbox: int, secrets: bytes) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # those inside that tidy up may need it
    os.setsid()
    os.chdir("/")
    kept = sorted((ours.fileno(), sandbox))
    for low, high in zip([2, *kept], [*kept, 1 << 16], strict=True):
        os.closerange(low + 1, high)  # what is the command's, such as the ends by which it is held
    sys.path[:0] = rules.pop("path")
    if secrets:
        from tools.sandbox.network.secret_hosts import serve_with_secrets

        serve_with_secrets(rules, ours, sandbox, secrets)
    else:
        from tools.sandbox.network.proxy import serve

        serve(rules, ours, sandbox)


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2:])
    except OSError as error:
        print(f"The command could not be given the network: {error}.", file=sys.stderr)
        sys.exit(125)
