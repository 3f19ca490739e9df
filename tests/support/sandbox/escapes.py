"""Ways out of the sandbox that a hostile command may try: the escape corpus.

A script says ESCAPED when it got what it must not; what else it did is found out by the attacked server
(escape_server.py). `open` names the circumstances under which a way is open, with the reason: the tests prove
that it is open there and closed everywhere else.
"""

from __future__ import annotations

from tests.support.sandbox.escape_forms import (
    ALWAYS,
    LANDLOCK,
    NO_MEMORY_GROUP,
    NO_PIDS_GROUP_AS_ROOT,
    NO_PIDS_GROUP_IN_LANDLOCK,
    OLD_LANDLOCK,
    ROOT,
    Attack,
    call,
    python,
    says,
)

# What is printed is cut in the middle when it is long.
_FIND = "grep -ao 'the-canary-[0-9a-f]*' | sort -u"
_UNSEALED = {LANDLOCK: "Landlock closes no place in the workspace"}
_MODES = {LANDLOCK: "Landlock knows no right to change modes and times"}
_PRESENCE = {LANDLOCK: "Landlock knows no right to look for names: there is no namespace of its own"}
_GONE = "if os.path.lexists('mine'): os.unlink('mine')\n"  # of an attack before
_SET_ID = {
    "handle": "f = os.open('mine', os.O_CREAT | os.O_RDWR, 0o755); os.fchmod(f, 0o4755)",
    "creation": "os.open('mine', os.O_CREAT | os.O_RDWR, 0o4755)",
    "folder": "os.open('mine', os.O_CREAT | os.O_RDWR, 0o2755, dir_fd=os.open('.', os.O_RDONLY))",
    "node": "os.mknod('mine', 0o104755)",
    # With AT_SYMLINK_FOLLOW, which Python leaves out: else it is the link in /proc that would get a name.
    "link": """
f = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o4755)
libc.linkat(-100, f'/proc/self/fd/{f}'.encode(), -100, b'mine', 0x400)""",
    "openat2": "libc.syscall(437, -100, b'mine', (ctypes.c_uint64 * 3)(0o102, 0o4755, 0), 24)",
    "fchmodat2": "os.open('mine', os.O_CREAT, 0o755); libc.syscall(452, -100, b'mine', 0o4755, 0)",
}
_LASTING = "bash -c 'echo; exec sleep {marker}'"  # says a line once it has left what the script says
# TIOCSTI types, and TIOCLINUX pastes what is selected on a console.
_PUSH = """
def push(file, got):
    for request, keys in ((termios.TIOCSTI, b'x'), (0x541C, b'\\x03')):
        try: fcntl.ioctl(file, request, keys); done(got)
        except OSError: pass
"""
_PUSH_INTO_ALL = """
import glob
for path in sum(map(glob.glob, ('/proc/self/fd/*', '/proc/{server}/fd/*', '/dev/pts/*', '/dev/tty*', '/dev/con*')), []):
    try: push(os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK), False)
    except OSError: pass"""
_SOCK = "s = socket.socket({0}); s.connect({1}); s.send(b'x')"

READING = (
    Attack("the passwords", says("cat /etc/shadow")),
    Attack("their backups", says("cat /etc/shadow- || cat /etc/gshadow")),
    Attack("private keys of the machine", says("ls /etc/ssl/private/* || cat /etc/ssh/ssh_host*key")),
    Attack("the home of the server's user", "cat {home}/key; cat ~root/.bashrc ~root/.profile && echo ESCA''PED"),
    Attack("the data directory", "cat {data}/secret"),
    Attack("the data directory, from the workspace", "cat ../data/secret; cd ..; cat data/secret"),
    Attack("the data directory, through an own link", "ln -sf {data}/secret link; cat link"),
    Attack("the data directory, through a link that was there", "cat planted_link"),
    Attack("the data directory, through a link to the top", "ln -sfn / top; cat top{data}/secret"),
    Attack("an own hard link", "ln {data}/secret hard; cat hard"),
    Attack("a hard link that was there", "cat planted_hard_link", {ALWAYS: "it is a file of the workspace"}),
    Attack("the first process's root", "cat /proc/1/root{data}/secret"),
    Attack("the own root", "cat /proc/self/root{data}/secret /proc/self/cwd/../data/secret"),
    Attack("the server's root", "cat /proc/{server}/root{data}/secret /proc/{server}/cwd{data}/secret"),
    Attack("the server's environment", "cat /proc/{server}/environ"),
    Attack("everybody's environment", f"cat /proc/[0-9]*/environ | {_FIND}"),
    Attack("everybody's command line", f"cat /proc/[0-9]*/cmdline | {_FIND}"),
    Attack("the server's open files", "for file in /proc/{server}/fd/*; do [ -f $file ] && cat $file; done"),
    Attack("the server's map of memory", says("cat /proc/{server}/maps")),
    Attack("the server's memory", says("head -c 1 /proc/{server}/mem") + python("done(open('/proc/{server}/mem'))")),
    Attack("inherited files", python("for n in range(3, 4096):\n try: print(os.pread(n, 99, 0))\n except OSError: 0")),
    Attack("inherited environment", "env; cat /proc/self/environ"),
    Attack("inherited ways to load code", says("env | grep -E '^(LD_|BASH_ENV|ENV|PYTHON(HOME|STARTUP)|NODE_)'")),
    Attack("shared memory (POSIX)", "cat {shared} /dev/shm/dragoman-test-*"),  # other files may be gigabytes just now
    Attack(
        "shared memory (System V)",
        python("libc.shmat.restype = ctypes.c_void_p\nprint(ctypes.string_at(libc.shmat({segment}, None, 0o10000)))"),
    ),
    Attack(
        "a key of the server",
        python("""
number = (250, 219)[os.uname().machine == 'aarch64']
key = libc.syscall(number, 10, -3, b'user', b'dragoman-test', 0)
held = ctypes.create_string_buffer(99)
if key > 0 and libc.syscall(number, 11, key, held, 99) > 0: print(held.value)"""),
    ),
    Attack("the disk", says("head -c 1 /dev/vda || head -c 1 /dev/sda || head -c 1 /dev/nvme0n1")),
    Attack("the machine's memory", says("head -c 1 /dev/mem || head -c 1 /dev/port || head -c 1 /proc/kcore")),
    Attack("names and sizes outside", says("stat -c %s {data}/secret {home}/key"), _PRESENCE),
    Attack("which processes there are", says("test -d /proc/{server}"), _PRESENCE),
    Attack("the list of processes", says("ls /proc | grep -x {server}")),
)

WRITING = (
    Attack("a file beside the workspace", "echo x > {folder}/made; echo x > {home}/made; mkdir {folder}/made"),
    Attack("more in the data", "echo x >> {data}/secret"),
    Attack("through a link", "ln -sf {home}/key link; echo x > link; echo x > planted_link"),
    Attack("emptied by name", python("os.truncate('{home}/key', 0)")),
    Attack("removed", "rm -rf {data} {home}"),
    Attack("taken into the workspace", "mv {data}/secret . ; mv ../home ."),
    Attack("the workspace moved away", "mv {workspace} {folder}/moved"),
    Attack("modes outside", "chmod 666 {home}/key", _MODES),
    Attack("times outside", "touch -d 2001-01-01 {home}/key", _MODES),
    Attack("modes of devices", says("chmod 666 /dev/null"), {ROOT: "they are root's; a server belongs to a user"}),
    Attack("the sandbox's own program", python("os.chmod('/proc/1/exe', 0o755); done()")),
    Attack("the server's interpreter", says("chmod u+w {python}; echo x >> {python}")),
    Attack("the system", says("touch /usr/made || touch /usr/bin/made || echo x >> /etc/passwd || touch /made")),
    Attack("the program for core dumps", says("echo '{core}' > /proc/sys/kernel/core_pattern")),
    Attack("other settings of the kernel", says("echo h > /proc/sysrq-trigger || echo 1 > /proc/sys/vm/drop_caches")),
    Attack("the own score when memory runs out", says("echo -1000 > /proc/self/oom_score_adj")),
    Attack("control groups", says("find /sys/fs/cgroup -name cgroup.procs -writable | xargs -rn1 tee <<< 0 | grep 0")),
    Attack("a hook of git", says("mkdir -p .git/hooks && echo true > .git/hooks/pre-commit"), _UNSEALED),
    Attack("a set-uid file", says("cp /bin/true mine && chmod 4755 mine && test -u mine")),
    Attack("a set-gid file", says("cp /bin/true mine && chmod g+xs mine && test -g mine")),
    *(
        Attack(f"a set-uid file by {name}", python(_GONE + code + "\ndone(os.stat('mine').st_mode & 0o6000)"))
        for name, code in _SET_ID.items()
    ),
)

NAMESPACES = (
    Attack("mount", says("mkdir -p m && mount -t tmpfs none m") + "; " + says("mount --bind / m")),
    Attack("remount", says("mount -o remount,rw / && touch /usr/made || mount -o remount,bind,rw /usr")),
    Attack("mount control groups", says("mkdir -p m && mount -t cgroup2 none m")),
    Attack("unmount", says("umount -l /proc || umount {workspace} || umount {data}")),
    Attack("a user namespace", says("unshare -Ur true") + "; " + python("done(libc.unshare(0x10000000) == 0)")),
    Attack("a mount namespace", says("unshare -m true")),
    Attack(
        "a clone in namespaces",
        python("""
number = (56, 220)[os.uname().machine == 'aarch64']
pid = libc.syscall(number, 0x10000000 | 0x20000 | signal.SIGCHLD, None, None, None, None)
if pid == 0: os._exit(0)
done(pid > 0)"""),
    ),
    Attack("the server's namespaces", says("nsenter -t {server} -m true || nsenter -t {server} -n true")),
    Attack("chroot", says("chroot / true") + "; " + python("os.chroot('.'); done()")),
    Attack("a device of its own", says("mknod disk b 254 0 || mknod memory c 1 1")),
    Attack("su", "su root -c 'cat /etc/shadow' < /dev/null && echo ESCA''PED"),
    Attack(
        "capabilities",
        python("""
held = ctypes.create_string_buffer(24)
done(libc.capget(b'\\x22\\x05\\x08\\x20' + bytes(4), held) != 0 or any(held.raw))"""),
    ),
    Attack(
        "the machine's name and clock", says("hostname elsewhere") + python("\ndone(libc.sethostname(b'x', 1) == 0)")
    ),
)

PROCESSES = (
    Attack("end the server", "kill -TERM {server}", {OLD_LANDLOCK: "Linux before 6.12 cannot refuse signals"}),
    Attack("end another process", "kill -KILL {neighbour}", {OLD_LANDLOCK: "Linux before 6.12 cannot refuse signals"}),
    Attack(
        "a signal by handle",
        python("signal.pidfd_send_signal(os.pidfd_open({server}), signal.SIGUSR1)"),
        {OLD_LANDLOCK: "Linux before 6.12 cannot refuse signals"},
    ),
    Attack(
        "a signal by a pipe",
        python("""
r, w = os.pipe()
fcntl.fcntl(r, fcntl.F_SETOWN, {server})
fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)
os.write(w, b'x')"""),
        {OLD_LANDLOCK: "Linux before 6.12 cannot refuse signals"},
    ),
    Attack(
        "trace the server",
        python("done(libc.ptrace(0x4206, {server}, 0, 0) == 0 or libc.ptrace(16, {server}, 0, 0) == 0)"),
    ),
    Attack("a file of the server by handle", call("438, 438", "os.pidfd_open({server})", "0", "0")),
    Attack("limits of the server", python("resource.prlimit({server}, resource.RLIMIT_CORE); done()")),
    Attack(
        "processors of the server",
        python("os.sched_setaffinity({server}, os.sched_getaffinity(0)); done()"),
    ),
    Attack("the priority of the server", says("renice -n 19 -p {server}")),
    Attack(
        "the priority of all of the user's", python("os.setpriority(2, 0, 19); done(os.getpriority(0, {server}) == 19)")
    ),
    Attack("how the server is scheduled", says("chrt --batch -p 0 {server} || ionice -c 3 -p {server}")),
    Attack(
        "trace the box's first process",
        python("done(libc.ptrace(0x4206, 1, 0, 0) == 0 or libc.ptrace(16, 1, 0, 0) == 0)"),
    ),
    Attack("trace an own process", python("done(libc.ptrace(0, 0, 0, 0) == 0)")),
    Attack(
        "write into another process",
        python("libc.process_vm_writev(os.getppid(), None, 0, None, 0, 0) >= 0 and done()"),
    ),
    Attack("an own file by handle", call("438, 438", "os.pidfd_open(os.getpid())", "0", "0")),
    Attack(
        "a process left behind",
        f"(setsid {_LASTING} & setsid env -i {_LASTING} &) | (read -t 9; read -t 9)",
        {
            NO_PIDS_GROUP_IN_LANDLOCK: "it has left its parent and its environment: only a group would find it",
        },
    ),
    Attack(
        "a double fork left behind",
        f"(setsid env -i {_LASTING} > >(cat) 2> /dev/null &) | read -t 9",
        {
            NO_PIDS_GROUP_IN_LANDLOCK: "it has left its parent and its environment: only a group would find it",
        },
    ),
    Attack(
        "keys on the terminal",
        python("""
for n in range(3):
    try: fcntl.ioctl(n, termios.TIOCSTI, b'x'); done()
    except OSError: pass
fcntl.ioctl(os.open('/dev/tty', os.O_RDWR), termios.TIOCSTI, b'x'); done()"""),
    ),
    Attack("keys on the own terminal", python(_PUSH + "push(1, True); push(2, True)"), in_terminal=True),
    Attack("keys on the terminal of the server", python(_PUSH + _PUSH_INTO_ALL), in_terminal=True),
    Attack(
        "a program in the kernel",
        call("321, 280", "0", "b''.join(n.to_bytes(4, sys.byteorder) for n in (2, 4, 4, 1)) + bytes(56)", "72"),
    ),
    Attack("another kernel", call("246, 104", "0", "0", "None", "0")),
    Attack("a module of the kernel", call("175, 105", "b''", "0", "b''")),
)

NETWORK = (
    Attack("TCP on loopback", says("exec 3<>/dev/tcp/127.0.0.1/{tcp}")),
    Attack("TCP on loopback, as multipath", python(_SOCK.format("2, 1, 262", "('127.0.0.1', {tcp})"))),
    Attack("UDP on loopback", "echo x > /dev/udp/127.0.0.1/{udp}"),
    Attack("a socket of a daemon", python(_SOCK.format("1", "'{socket}'"))),
    Attack(
        "docker's socket",
        python("for top in ('/run', '/var/run'): " + _SOCK.format("1", "top + '/docker.sock'") + "; done()"),
    ),
    Attack("a datagram socket of a daemon", python(_SOCK.format("1, 2", "'{socket}.dgram'"))),
    Attack("a datagram from a pair", python("socket.socketpair(1, 2)[0].sendto(b'x', '{socket}.dgram')")),
    Attack("an abstract socket", python(_SOCK.format("1", "'\\0{socket}'"))),
    Attack(
        "the metadata of a cloud",
        "timeout 3 bash -c 'exec 3<>/dev/tcp/169.254.169.254/80'; " + says("[ $? = 0 -o $? = 124 ]"),
    ),
    Attack(
        "sockets that namespaces do not hold, such as the hypervisor's",
        python("""
for n in range(4 * 64):
    try: n // 4 in (1, 2, 10, 16) or done(socket.socket(n // 4, (1, 2, 3, 5)[n % 4]))
    except OSError: 0"""),
    ),
    Attack("packets", python("socket.socket(17, 3); done()") + "\n" + python("socket.socket(2, 3, 1); done()")),
)

RESOURCES = (
    Attack(
        "a fork bomb",
        python("""
import time
made = 0
for _ in range(200):
    pid = os.fork()
    if pid == 0: time.sleep(5); os._exit(0)
    made += 1
done()"""),
        {NO_PIDS_GROUP_AS_ROOT: "for root the kernel counts nothing but groups"},
    ),
    Attack(
        "memory without end",
        python("held = bytearray(192 << 20)\nheld[::4096] = b'x' * len(held[::4096])\ndone()"),
        {
            NO_MEMORY_GROUP: "only a group bounds memory; the command is the first that the kernel ends",
        },
    ),
    Attack("one file without end", says("head -c 20M /dev/zero > big") + "; rm -f big"),
    Attack(
        "many files",
        says("for n in 1 2 3; do head -c 7M /dev/zero > big.$n || exit; done") + "; rm -f big.*",
        {
            ALWAYS: "the disk of the workspace has no quota of ours",
        },
    ),
    Attack(
        "temporary files",
        says("for n in 1 2 3; do head -c 7M /dev/zero > ${TMPDIR:-/tmp}/big.$n || exit; done"),
        {
            LANDLOCK: "the temporary directory lies on a disk, which has no quota of ours",
        },
    ),
    Attack(
        "shared memory without end",
        says("for n in 1 2 3; do head -c 7M /dev/zero > /dev/shm/big.$n || n=0; [ $n = 0 ] && break; done; [ $n = 3 ]")
        + "; rm -f /dev/shm/big.*",
    ),
    Attack("the top of the box", says("echo x > /big || echo x > /dev/big || echo x > /run/big")),
    Attack("higher limits", says("ulimit -c unlimited") + "; " + says("ulimit -f unlimited")),
)

ATTACKS = (*READING, *WRITING, *NAMESPACES, *PROCESSES, *NETWORK, *RESOURCES)
# Those that harm nobody but the attacked server, so that without a sandbox they can show that they work.
HARMLESS = frozenset(
    {
        *("the data directory", "the data directory, from the workspace", "the data directory, through an own link"),
        *("the data directory, through a link that was there", "the data directory, through a link to the top"),
        *(
            "an own hard link",
            "a hard link that was there",
            "the own root",
            "the server's root",
            "which processes there are",
        ),
        *(
            "the server's environment",
            "everybody's command line",
            "the server's map of memory",
            "names and sizes outside",
        ),
        *("the server's open files", "shared memory (POSIX)", "shared memory (System V)", "a key of the server"),
        *(
            "the list of processes",
            "a file beside the workspace",
            "more in the data",
            "through a link",
            "emptied by name",
        ),
        *("removed", "taken into the workspace", "modes outside", "times outside", "a set-uid file", "a hook of git"),
        *("end the server", "end another process", "a signal by handle", "a signal by a pipe", "limits of the server"),
        *("a file of the server by handle", "processors of the server", "a process left behind", "TCP on loopback"),
        *("UDP on loopback", "a socket of a daemon", "a datagram socket of a daemon", "a datagram from a pair"),
        *("an abstract socket", "TCP on loopback, as multipath", "memory without end", "one file without end"),
        *("many files", "shared memory without end", "a fork bomb", "a double fork left behind", "a set-gid file"),
        *(f"a set-uid file by {name}" for name in _SET_ID),
    }
)


def attacks(level: str) -> tuple[Attack, ...]:
    """What is tried at a level. An old Landlock differs in processes only."""
    match level:
        case "none":
            return tuple(attack for attack in ATTACKS if attack.name in HARMLESS)
        case "landlock-old":
            return PROCESSES
    return ATTACKS
