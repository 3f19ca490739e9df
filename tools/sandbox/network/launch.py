"""Starts a command's proxy, then becomes the command: launch.py RULES WORD...

Run as a script outside of the sandbox, without `site`. The proxy is a process of its own: what the box sends cannot
hold up the server, and a job keeps its network when the server is started again. It ends with the sandbox, whose
process this one becomes, and then reports on its standard output what was reached and refused.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

CHANNEL = "DRAGOMAN_CHANNEL"  # in the environment: the file on which `inside/listen.py` hands out its socket


def main(rules: str, words: list[str]) -> None:
    """Never returns."""
    ours, theirs = socket.socketpair()
    sandbox = os.pidfd_open(os.getpid())
    if os.fork() == 0:
        # Twice, so that it is no child of the sandbox, which knows nothing of it.
        if os.fork() == 0:
            _serve(json.loads(rules), ours, sandbox)
        os._exit(0)
    os.wait()
    os.close(sandbox)
    ours.close()
    os.set_inheritable(theirs.fileno(), True)
    os.environ[CHANNEL] = str(theirs.fileno())
    os.execv(words[0], words)


def _serve(rules: dict[str, list[str]], ours: socket.socket, sandbox: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # those inside that tidy up may need it
    os.setsid()
    os.chdir("/")
    kept = sorted((ours.fileno(), sandbox))
    for low, high in zip([2, *kept], [*kept, 1 << 16], strict=True):
        os.closerange(low + 1, high)  # what is the command's, such as the ends by which it is held
    sys.path[:0] = rules.pop("path")
    from tools.sandbox.network.proxy import serve

    serve(rules, ours, sandbox)


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2:])
    except OSError as error:
        print(f"The command could not be given the network: {error}.", file=sys.stderr)
        sys.exit(125)
