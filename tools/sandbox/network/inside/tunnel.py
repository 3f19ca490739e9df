"""Inside the box: standard input and output to a host, through the proxy: tunnel.py HOST PORT. ssh uses it."""

import os
import socket
import sys
import threading
from urllib.parse import urlsplit


def main(host: str, port: str) -> None:
    """Returns when the host has ended the connection."""
    proxy = urlsplit(os.environ["HTTPS_PROXY"])
    connection = socket.create_connection((proxy.hostname or "", proxy.port or 0))
    shown = f"[{host}]" if ":" in host else host
    connection.sendall(f"CONNECT {shown}:{port} HTTP/1.1\r\nHost: {shown}:{port}\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n") and (byte := connection.recv(1)):
        answer += byte
    if b" 200 " not in answer.partition(b"\r\n")[0]:
        print(connection.recv(4096).decode(errors="replace"), end="", file=sys.stderr)
        sys.exit(1)
    threading.Thread(target=_send, args=(connection,), daemon=True).start()
    while block := connection.recv(65_536):
        os.write(1, block)


def _send(connection: socket.socket) -> None:
    while block := os.read(0, 65_536):
        connection.sendall(block)
    connection.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OSError as error:
        print(f"The connection broke off: {error}.", file=sys.stderr)
        sys.exit(1)
