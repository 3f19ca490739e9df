"""Where control groups are made, what is left of a command, and what the levels hide and grant."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import select
import shutil
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec import field
from msgspec.structs import replace

from tests import ROOT
from tests.support.sandbox.processes import all_gone, endless
from tools.base.outcome import Result, ToolFailed
from tools.builtin.shell import running
from tools.process.orphan_reaper import MARK, PREFIX, clear, clear_stale
from tools.process.resource_limits import NO_LIMITS, Group, ResourceLimits, find_limits, possible_groups
from tools.sandbox.landlock import Landlock, find_landlock
from tools.sandbox.sandbox import Bubblewrap, NoSandbox, Unboxed, find_sandbox
from tools.sandbox.sandbox_mounts import visible_python
from tools.tool import Context

bash = running("bash", "command")
BOXES = [box for level in ("bubblewrap", "landlock") if not isinstance(box := find_sandbox(levels=[level]), NoSandbox)]
LANDLOCK = [box for box in BOXES if isinstance(box, Landlock)]
levels = pytest.mark.parametrize("box", BOXES, ids=lambda box: box.level)
landlock_only = pytest.mark.parametrize("box", LANDLOCK, ids=lambda box: box.level)


def told(box: Bubblewrap | Landlock | Unboxed | NoSandbox, workspace: Path, command: str) -> Result:
    async def main() -> Result:
        async with asyncio.timeout(60), aclosing(bash({"command": command}, Context(workspace, 60, box))) as news:
            *_, last = [seen async for seen in news]
        assert isinstance(last, Result)
        return last

    return asyncio.run(main())


MOUNTS_1 = """\
30 20 0:26 {root} {top}/pids rw,relatime - cgroup cgroup rw,pids
31 20 0:27 / {top}/memory rw,relatime shared:1 - cgroup cgroup rw,memory
32 20 0:28 / {top}/unified rw - cgroup2 cgroup2 rw
33 20 0:29 / /tmp rw - tmpfs tmpfs rw"""
MOUNTS_2 = "30 20 0:26 / {top} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"


@pytest.mark.parametrize(
    ("cgroup", "mounts", "root", "controlled", "expected"),
    [
        ("8:pids:/\n4:memory:/a/b\n0::/", MOUNTS_1, "/", [], [["pids"], ["memory/a/b"]]),
        ("8:pids:/docker/1\n4:cpu,memory:/", MOUNTS_1, "/docker/1", [], [["pids"], ["memory"]]),
        ("8:pids:/docker/1/x\n0::/", MOUNTS_1, "/docker/1", [], [["pids/x"], []]),
        (
            "0::/user.slice/app.slice/x.service",
            MOUNTS_2,
            "/",
            ["user.slice/app.slice", "user.slice", ""],
            [["user.slice/app.slice", "user.slice", "."]],
        ),
        ("0::/user.slice/x.scope", MOUNTS_2, "/", ["user.slice"], [["user.slice"]]),
        ("0::/", MOUNTS_2, "/", [], [[]]),
        ("", "", "/", [], [[]]),
    ],
)
def test_where_groups_may_be_made(
    tmp_path: Path, cgroup: str, mounts: str, root: str, controlled: list[str], expected: list[list[str]]
) -> None:
    (tmp_path / "cgroup").write_text(cgroup)
    (tmp_path / "mountinfo").write_text(mounts.format(top=tmp_path / "top", root=root))
    for folder in controlled:
        (tmp_path / "top" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "top" / folder / "cgroup.subtree_control").write_text("cpu memory pids\n")
    found = possible_groups(NO_LIMITS, tmp_path)
    assert [[os.path.relpath(group.folder, tmp_path / "top") for group in groups] for groups in found] == expected


@pytest.mark.skipif(not os.access("/sys/fs/cgroup", os.W_OK) and os.getuid() != 0, reason="no group can be made here")
@pytest.mark.parametrize("where", ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"])
def test_what_is_in_a_group_ends_with_it(where: str) -> None:
    """Version 1 kills one by one, version 2 all at once."""
    limits = ResourceLimits(groups=(Group(Path(where), ()),), bounded=True)
    mark, sleeper = f"test.{os.getpid()}", endless()
    if not (Path(where) / "cgroup.procs").exists():
        pytest.skip("there is no such hierarchy")
    words = (*limits.begin(mark), "bash", "-c", f"(setsid env -i {sleeper} > /dev/null 2>&1 &); echo up")
    assert subprocess.run(words, capture_output=True, text=True, timeout=10, check=True).stdout == "up\n"
    assert (Path(where) / f"{PREFIX}{mark}").is_dir()
    clear(limits.places, mark)
    assert not (Path(where) / f"{PREFIX}{mark}").exists() and all_gone(sleeper)


def test_only_what_is_old_and_has_no_process_is_stale(tmp_path: Path) -> None:
    for name in ("young", "used", "old", "deep"):
        (tmp_path / f"{PREFIX}{name}").mkdir()
    (tmp_path / "another").mkdir()
    inner = tmp_path / f"{PREFIX}deep"
    for _ in range(50):
        inner /= "x"
        inner.mkdir()
    (tmp_path / f"{PREFIX}deep" / "x").chmod(0)
    for path in (*tmp_path.iterdir(),):
        if "young" not in path.name:
            os.utime(path, (0, 0))
    pipe = subprocess.PIPE
    with subprocess.Popen(["cat"], env={MARK: "used"}, stdin=pipe, stdout=pipe, text=True, bufsize=1) as user:
        try:
            assert user.stdin and user.stdout
            user.stdin.write("It runs: just begun, a process has no environment yet.\n")
            user.stdout.readline()
            clear_stale([str(tmp_path), str(tmp_path / "missing")])
        finally:
            user.kill()
    assert {path.name for path in tmp_path.iterdir()} == {f"{PREFIX}young", f"{PREFIX}used", "another"}


def test_a_folder_that_goes_while_it_is_searched_holds_nothing_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scandir(path: object) -> object:
        raise FileNotFoundError(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        patch.setattr(os, "listdir", scandir)
        clear_stale([str(tmp_path)])


@levels
@pytest.mark.parametrize("command", ["true", "exit 3", "kill -9 $$", "(sleep 1000 &); (setsid env -i sleep 1000 &)"])
def test_nothing_is_left_of_a_command(tmp_path: Path, box: Bubblewrap | Landlock, command: str) -> None:
    places = [Path(place) for place in box.limits.places]
    mark = told(box, tmp_path, f'echo "$DRAGOMAN_CALL" > mark; {command}') and (tmp_path / "mark").read_text().strip()
    assert mark and not [place for place in places if (place / f"{PREFIX}{mark}").exists()]


FORKS = """python3 - <<'END'
import os, time
made = 0
try:
    while made < 40:
        if os.fork() == 0:
            time.sleep(1000)
        made += 1
except BlockingIOError:
    pass
print(made, flush=True)
{}
END"""


@pytest.mark.skipif(not find_limits().bounds("pids"), reason="no group can be made here")
@levels
def test_bounds_hold_for_all_commands_of_a_principal_together(tmp_path: Path, box: Bubblewrap | Landlock) -> None:
    """Version 1 or 2, whichever this machine has."""
    limits = find_limits(ResourceLimits(pids=64, memory_bytes=256 << 20))
    box = replace(box, limits=replace(box.limits, groups=limits.groups))

    async def forks(principal: str, then: str = "") -> int:
        context = Context(tmp_path, 60, box, principal=principal)
        async with aclosing(bash({"command": FORKS.format(then)}, context)) as news:
            async for seen in news:
                lines = seen.text.splitlines() if isinstance(seen, Result) else seen.tail
                if lines:
                    if then:
                        held.set()
                        await free.wait()
                    return int(lines[0])
        raise AssertionError("it said nothing")

    async def main() -> tuple[int, int]:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(forks(ann, "time.sleep(1000)"))
            await held.wait()
            assert around(ann)  # while it is in use: any server that starts removes empty ones
            try:
                return await forks(ann), await forks(bob)
            finally:
                free.set()

    def around(*principals: str) -> list[Path]:
        return [path for one in limits.groups for path in map(one.of_principal, principals) if path.exists()]

    held, free = asyncio.Event(), asyncio.Event()
    ann, bob = (f"{name} {secrets.token_hex(8)}" for name in ("ann", "bob"))  # of no other server of this machine
    more, others = asyncio.run(main())
    assert more < 24 and others == 40
    assert not [path for one in around(ann, bob) for path in one.glob(f"{PREFIX}*")]


def test_the_group_of_a_principal_hands_on_what_bounds(tmp_path: Path) -> None:
    """As version 2 wants it, played in a plain folder."""
    group = Group(tmp_path, (("pids.max", 7),))
    around = group.make("one", "ann").parent
    assert around.parent == tmp_path and (around / "pids.max").read_text() == "7"
    assert group.make("two", "ann").parent == around != group.make("one", "bob").parent
    assert group.make("three") == tmp_path / "three"


@landlock_only
def test_a_temporary_directory_that_is_hard_to_remove(tmp_path: Path, box: Landlock) -> None:
    script = """python3 - <<'END'
import os
os.chdir(os.environ["TMPDIR"])
for _ in range(3000):
    os.mkdir("x"); os.chdir("x")
END
mkdir $TMPDIR/closed && chmod 0 $TMPDIR/closed; ln -s / $TMPDIR/top; echo $TMPDIR"""
    place = Path(told(box, tmp_path, script).text)
    assert place.name.startswith(PREFIX) and not place.exists() and Path("/usr").exists()


SERVER = """
import asyncio, sys
from pathlib import Path
from tools.sandbox.sandbox import find_sandbox
from tools.builtin.shell import running
from tools.tool import Context

async def main(workspace, level):
    context = Context(Path(workspace), 60, find_sandbox(levels=[level]))
    async for seen in running("bash", "command")({"command": "echo $DRAGOMAN_CALL; sleep 1000"}, context):
        print(getattr(seen, "tail", ""), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@levels
def test_nothing_is_left_of_a_server_that_was_killed(tmp_path: Path, box: Bubblewrap | Landlock) -> None:
    words = [sys.executable, "-c", SERVER, str(tmp_path), box.level]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        [mark] = next(eval(line) for line in server.stdout if "." in line)
        left = [Path(place) / f"{PREFIX}{mark}" for place in box.limits.places]
        assert all(path.exists() for path in left)
        server.kill()
    for _ in range(200):
        if not any(path.exists() for path in left):
            return
        select.select([], [], [], 0.05)
    pytest.fail(f"{left} are still there")


def test_a_group_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    for box in BOXES:
        assert not isinstance(box, Unboxed)
        lost = replace(box, limits=ResourceLimits(groups=(Group(tmp_path / "missing", ()),), bounded=True))
        with pytest.raises(ToolFailed, match="could not be made"):
            told(lost, tmp_path, "true")


@levels
def test_what_is_hidden_in_what_is_shown(tmp_path: Path, box: Bubblewrap | Landlock) -> None:
    hiding = find_sandbox(levels=[box.level], hidden=[Path("/usr/share/zoneinfo"), tmp_path])
    (tmp_path / "work").mkdir()
    (tmp_path / "secret").write_text("the secret")
    seen = told(
        hiding, tmp_path / "work", "cat /usr/share/zoneinfo/UTC ../secret; ls /usr/share/zoneinfo; ls /usr/bin/env"
    )
    assert "TZif" not in seen.text and "the secret" not in seen.text and seen.text.endswith("/usr/bin/env")


WORK = """git init -q sub && cd sub && touch file && git add file &&
git -c user.name=a -c user.email=a@b commit -qm first &&
echo 'int main(void) { return 42; }' > a.c && cc a.c && ./a.out
echo $?
python3 -m venv --without-pip v && v/bin/python -c 'print(6 * 7)'"""


@levels
@pytest.mark.skipif(not (shutil.which("git") and shutil.which("cc")), reason="there is no git or no compiler")
def test_git_a_compiler_and_environments_work(tmp_path: Path, box: Bubblewrap | Landlock) -> None:
    assert told(box, tmp_path, WORK).text == "42\n42"


@landlock_only
def test_landlock_refuses_a_workspace_with_something_to_hide(tmp_path: Path, box: Landlock) -> None:
    (tmp_path / "data").mkdir()
    result = told(replace(box, hidden=(tmp_path / "data",)), tmp_path, "echo ran")
    assert not result.ok and f"cannot hide {tmp_path / 'data'} inside the workspace" in result.text


@landlock_only
def test_a_landlock_that_is_too_old_is_none(box: Landlock) -> None:
    found = find_landlock(Landlock(visible_python(), abi=2))
    assert isinstance(found, str) and "version 3 is needed" in found


def test_levels_say_what_they_block() -> None:
    for box in (*BOXES, find_sandbox(unsafe=True), NoSandbox("")):
        assert box.blocks.endswith(".")
    assert not find_sandbox(unsafe=True).boxed and not NoSandbox("").boxed


def test_without_any_level_the_reason_names_each() -> None:
    none = find_sandbox(levels=[])
    assert isinstance(none, NoSandbox) and "--unsafe-no-sandbox" in none.reason


def test_the_limits_of_this_machine_are_told() -> None:
    found = find_limits(ResourceLimits(pids=77, memory_bytes=64 << 20))
    assert ("at most 77 processes" in found.describe()) == (found.bounds("pids") or os.getuid() != 0)
    assert ("64 MB of memory" in found.describe()) == found.bounds("memory")


class Contested(Group, frozen=True):
    """A control group on a machine where another server removes the principal's group while it is empty."""

    removals: list[str] = field(default_factory=list)

    def _make_around(self, around: Path) -> None:
        super()._make_around(around)
        if len(self.removals) < 3:
            self.removals.append(around.name)
            shutil.rmtree(around)


class Removed(Contested, frozen=True):
    """The same, between the opening of a group's file and the write."""

    def _bound(self, group: Path) -> None:
        if len(self.removals) < 3:
            self.removals.append(group.name)
            group.rmdir()
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        super()._bound(group)


def test_a_group_that_is_removed_while_it_is_bounded_is_made_again(tmp_path: Path) -> None:
    group = Removed(tmp_path, (("pids.max", 10),))
    made = group.make("command", "local")
    assert (made / "pids.max").read_text() == "10" and len(group.removals) == 3


def test_a_group_that_another_server_removes_is_made_again(tmp_path: Path) -> None:
    group = Contested(tmp_path, (("pids.max", 10),))
    made = group.make("command", "local")
    assert (made / "pids.max").read_text() == "10" and len(group.removals) == 3
