"""Inside the box: makes the proxy's socket, hands it out, and becomes the command: listen.py PORT WORD...

A socket belongs to the network namespace that it was made in, whichever process accepts on it: so the proxy, which is
outside, is reached on this box's own loopback, and nothing has to run in here for it.
"""

import os
import socket
import sys


def main(port: str, words: list[str]) -> None:
    """Never returns."""
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=128)
    with socket.socket(fileno=int(os.environ.pop("DRAGOMAN_CHANNEL"))) as channel:
        socket.send_fds(channel, [b"!"], [listener.fileno()])
    listener.close()
    os.execvp(words[0], words)


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2:])
    except OSError as error:
        print(f"The command could not be given the network: {error}.", file=sys.stderr)
        sys.exit(125)
