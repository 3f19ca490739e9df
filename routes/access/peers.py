"""The account at the other end of a connection on this machine, as the kernel knows it.

On Linux the kernel keeps, for each socket, the user id that made it, and tells every account (`ss -e` shows it): by
sock_diag (its manual page is sock_diag(7)), which looks up one connection by its addresses in
constant time, else by /proc/net/tcp, which lists all of them. An answer counts only if

- the other end still has a socket that a process holds: one that was closed or waits for its time to pass is listed
  without one, and by some kernels with user id 0, although it was never root's;
- our own end is still connected afterwards: then no other process can have had those addresses in between.

Where the kernel cannot say (another system, a network namespace in between) there is no answer.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
from asyncio import BaseTransport
from contextlib import closing
from errno import EBADMSG, ENOENT
from functools import cache, cached_property, lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from msgspec import Struct

PEER = "peer"  # where `scope["state"]` has it
ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LISTEN = 1, 4, 5, 8, 10  # include/net/tcp_states.h
CONNECTED = frozenset({ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT})  # half-closed ones included
ANSWERABLE = frozenset({ESTABLISHED, CLOSE_WAIT})  # of our own end: the other may have said all it will
WHOLE_MAP = ["0", "0", "4294967295"]  # of a user namespace in which every account has its own number

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLMSG_ERROR, _NLM_F_REQUEST = 4, 20, 2, 1
_HEAD = struct.Struct("=IHHII")  # struct nlmsghdr
_REQUEST = struct.Struct("=BBBBI")  # struct inet_diag_req_v2, up to its id
_PORTS = struct.Struct("!HH")
_ANSWER = struct.Struct("=BBBB 48x III II")  # struct inet_diag_msg
_ANY_INTERFACE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # and no cookie
MAPPED = b"\0" * 10 + b"\xff\xff"  # in front of an IPv4 address that IPv6 carries
_TIMEOUT = struct.pack("@ll", 1, 0)  # the kernel answers at once; a second is a bound, not a wait

Address = tuple[str, int]


class Entry(Struct, frozen=True):
    """A socket as the kernel lists it; `inode` 0 is one that no process holds."""

    state: int
    uid: int
    inode: int


class Peer:
    """The other end of one connection. The kernel is queried on first use, once."""

    def __init__(self, transport: BaseTransport) -> None:
        self._socket: socket.socket | None = transport.get_extra_info("socket")

    @cached_property
    def uid(self) -> int | None:
        """The account that holds the other end; None where the kernel cannot say."""
        return None if self._socket is None else uid_of_peer(self._socket)

    @cached_property
    def address(self) -> IPv4Address | IPv6Address | None:
        """The address that the other end connects from, whatever headers say."""
        try:
            return address_of(self._socket.getpeername()[0]) if self._socket else None
        except OSError:  # closed meanwhile
            return None


def uid_of_peer(ours: socket.socket) -> int | None:
    """The account that made the socket at the other end of this TCP connection; None where the kernel cannot say."""
    if not sys.platform.startswith("linux") or not numbers_are_whole():
        return None
    try:
        theirs = entry_of(ours.getpeername()[:2], ours.getsockname()[:2])
        still = ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:
        return None
    if theirs is None or theirs.state not in CONNECTED or not theirs.inode or still not in ANSWERABLE:
        return None
    return theirs.uid


def uid_of_listener(host: str, port: int) -> int | None:
    """The account that listens at an address of this machine; None if none does, or the kernel cannot say."""
    if not sys.platform.startswith("linux") or not numbers_are_whole():
        return None
    try:
        addresses = {found[4][:2] for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        entries = [entry_of((str(one[0]), port), (_anywhere(str(one[0])), 0)) for one in addresses]
    except OSError:
        return None
    uids = {one.uid for one in entries if one and one.state == LISTEN and one.inode}
    return uids.pop() if len(uids) == 1 else None


@cache
def numbers_are_whole() -> bool:
    """Return whether each account has a user id of its own here: in most user namespaces all others look alike."""
    try:
        return Path("/proc/self/uid_map").read_text(encoding="ascii").split() == WHOLE_MAP
    except OSError:
        return True  # a kernel without user namespaces


@cache
def kernel_says() -> bool:
    """Return whether the kernel knows the account of a connection of this process to itself."""
    try:
        with closing(socket.create_server(("127.0.0.1", 0))) as listener:
            listener.settimeout(1.0)
            with closing(socket.create_connection(listener.getsockname(), 1.0)):
                with closing(listener.accept()[0]) as accepted:
                    return uid_of_peer(accepted) == os.geteuid()
    except OSError:
        return False


def entry_of(source: Address, target: Address) -> Entry | None:
    """The socket with these addresses, `source` its own. Raises OSError where the kernel does not list sockets."""
    try:
        return by_sock_diag(source, target)
    except OSError:  # not built in, or a container forbids it
        return by_proc(source, target)


def by_sock_diag(source: Address, target: Address) -> Entry | None:
    mine, other = _packed(source[0]), _packed(target[0])
    family = socket.AF_INET if len(mine) == 4 else socket.AF_INET6
    ports = _PORTS.pack(source[1], target[1])
    place = ports + mine.ljust(16, b"\0") + other.ljust(16, b"\0") + _ANY_INTERFACE
    answer = _sock_diag.ask(_REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + place)
    if _HEAD.unpack_from(answer)[1] == _NLMSG_ERROR:
        (number,) = struct.unpack_from("=i", answer, _HEAD.size)
        if -number == ENOENT:
            return None
        raise OSError(-number, os.strerror(-number))
    _, state, _, _, _, _, _, uid, inode = _ANSWER.unpack_from(answer, _HEAD.size)
    # Without such a connection the kernel names what listens there, which has nothing to do with it.
    exact = answer[_HEAD.size + 4 : _HEAD.size + 4 + len(ports)] == ports
    return Entry(state, uid, inode) if exact else None


class SockDiag:
    """A socket to ask the kernel by; it stays open, for to make one takes as long as the question and its answer."""

    def __init__(self) -> None:
        self.fd: int | None = None
        self._number = 0
        self._lock = threading.Lock()  # an answer is for who asked

    def ask(self, body: bytes) -> bytes:
        """Return the answer with its head. Raises OSError."""
        with self._lock:
            if self.fd is None:
                self.fd = self._opened()
            self._number = (self._number + 1) % 2**32
            head = _HEAD.pack(_HEAD.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, self._number, 0)
            try:
                os.write(self.fd, head + body)
                answer = os.read(self.fd, 4096)
                if _HEAD.unpack_from(answer)[3] != self._number:
                    raise OSError(EBADMSG, "the kernel answers another question")
            except OSError:  # an answer that comes late must not be taken for the next one
                os.close(self.fd)
                self.fd = None
                raise
            return answer

    @staticmethod
    def _opened() -> int:
        kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEOUT)
        return kernel.detach()


_sock_diag = SockDiag()


def by_proc(source: Address, target: Address) -> Entry | None:
    """Linear in the sockets of the machine."""
    wanted = {f"{mine} {other}" for mine, other in zip(_listed(source), _listed(target), strict=True)}
    for name in ("tcp", "tcp6"):
        with Path("/proc/net", name).open(encoding="ascii") as lines:
            for line in lines:
                _, mine, other, state, _, _, _, uid, _, inode, *_ = line.split()
                if f"{mine} {other}" in wanted:
                    return Entry(int(state, 16), int(uid), int(inode))
    return None


def _listed(address: Address) -> tuple[str, ...]:
    """An address as /proc writes it: 32 bits at a time as this machine's numbers; IPv4 also as IPv6 maps it."""
    place = _packed(address[0])
    forms = (place,) if len(place) == 16 else (place, MAPPED + place)
    return tuple(f"{_words(form)}:{address[1]:04X}" for form in forms)


def _words(place: bytes) -> str:
    return "".join(f"{word:08X}" for (word,) in struct.iter_unpack("=I", place))


@lru_cache(1024)
def _packed(host: str) -> bytes:
    """The 4 or 16 bytes of an address. Raises OSError for what is no address."""
    if (found := address_of(host)) is None:
        raise OSError(f"{host!a} is no address")
    return found.packed


def address_of(text: str | None) -> IPv4Address | IPv6Address | None:
    """The address that a text writes, that of IPv4 where IPv6 carries one; None for what is none."""
    try:
        found = ip_address((text or "").partition("%")[0])
    except ValueError:
        return None
    return found if isinstance(found, IPv4Address) else found.ipv4_mapped or found


def _anywhere(host: str) -> str:
    return "0.0.0.0" if len(_packed(host)) == 4 else "::"
