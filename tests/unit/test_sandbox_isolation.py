"""Each isolation mode that this machine has: what a program cannot do, and what is left when it is gone."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.sandbox import isolation
from gdpo_nemo.sandbox.inside import seccomp, syscalls
from gdpo_nemo.sandbox.jobs import Job, Limits, Sandbox, SandboxError, TestRun
from gdpo_nemo.sandbox.keeper import Keeper
from gdpo_nemo.sandbox.opening import check_name, open_sandbox
from gdpo_nemo.sandbox.pool import LocalPool
from gdpo_nemo.sandbox.probe import probe
from gdpo_nemo.sandbox.worker import ATTEMPTS, Worker

MODES = [mode for mode in isolation.MODES if mode != isolation.AUTO]
SHORT = Limits(cpu_s=0.5, memory_mb=256)


@pytest.fixture(scope="module", params=MODES)
def pool(request: pytest.FixtureRequest) -> Iterator[LocalPool]:
    try:
        made = LocalPool(1, mode=request.param)
    except SandboxError as error:
        pytest.skip(f"{request.param} does not hold here: {error}")
    with made:
        assert isinstance(made, Sandbox)
        yield made


def run(pool: LocalPool, source: str, stdin: str = "", limits: Limits = SHORT) -> TestRun:
    (result,) = pool.run([Job(source, (stdin,), limits=limits)])
    assert result.failure is None
    return result.runs[0]


def descendants(pid: int) -> list[int]:
    """The processes below one, as the kernel lists them."""
    found = []
    for each in Path(f"/proc/{pid}/task").iterdir():
        for child in (each / "children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def test_no_mode_lets_a_program_out() -> None:
    report = probe()
    assert {name: mode.breaches for name, mode in report.modes.items() if mode.holds and mode.breaches} == {}
    assert report.chosen in isolation.AUTOMATIC, report.lines()
    assert report.to_json() and any(line.startswith("auto: ") for line in report.lines())


@pytest.mark.parametrize(
    "source",
    [
        "import ctypes; c = ctypes.CDLL(None); print(c.unshare(0x10000000))",
        "import ctypes; c = ctypes.CDLL(None); print(c.ptrace(16, 1, 0, 0))",
        "import ctypes; c = ctypes.CDLL(None); print(c.syscall({io_uring_setup}, 8, 0))",
        "import ctypes; c = ctypes.CDLL(None); print(c.syscall({clone3}, 0, 0))",
        "import ctypes; c = ctypes.CDLL(None); print(c.syscall({clone}, 0x10000011, 0, 0, 0, 0))",
        "import ctypes; c = ctypes.CDLL(None); print(c.syscall({bpf}, 0, 0, 0))",
        "import ctypes; c = ctypes.CDLL(None); print(c.memfd_create(b'x', 0))",
        "import ctypes; c = ctypes.CDLL(None); print(c.mount(b'none', b'/', None, 1 << 18, None))",
    ],
)
def test_the_kernel_refuses(pool: LocalPool, source: str) -> None:
    table = syscalls.TABLES[syscalls.architecture()]
    assert run(pool, source.replace("{", "{0[").replace("}", "]}").format(table)).stdout == b"-1\n"


def test_nothing_of_the_caller_is_seen(pool: LocalPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDPO_SECRET", "secret-of-the-caller")
    source = """
import os, sys
seen = repr(dict(os.environ)) + repr(sys.argv)
for pid in ["self", "1", *map(str, range(os.getppid() - 3, os.getppid() + 3))]:
    for name in ("environ", "cmdline", "maps"):
        try: seen += open(f"/proc/{pid}/{name}", errors="replace").read()
        except OSError: pass
print("secret-of" in seen, "expected-answer" in seen, os.getuid() == 0 and os.path.exists("/proc/1/root" + "/etc"))
"""
    assert run(pool, source).stdout == b"False False False\n"


def test_the_memory_of_a_fork_holds_no_other_program_and_no_other_input(pool: LocalPool) -> None:
    word = "zanzibar-"
    (other,) = pool.run([Job(f"x = '{word}source'; print(input())", (f"{word}input",), limits=SHORT)])
    assert other.runs[0].stdout == f"{word}input\n".encode()
    scan = """
import ctypes, re
found = False
try:
    for line in open("/proc/self/maps"):
        span, mode = line.split()[:2]
        first, last = (int(each, 16) for each in span.split("-"))
        if mode.startswith("rw") and "stack" not in line and last - first < 1 << 26:
            memory = ctypes.string_at(first, last - first)
            found = found or bool(re.search(b"(?s)zanziba[r]-(sou|inp)", memory))
except OSError:
    pass
print(found)
"""
    assert run(pool, scan, limits=Limits()).stdout == b"False\n"


def test_files_stay_in_the_scratch_folder_and_go_with_the_program(pool: LocalPool) -> None:
    marker = Path(tempfile.gettempdir(), "gdpo-marker-of-a-test")
    source = f"""
for path in ({str(marker)!r}, "/etc/gdpo-marker", "/usr/gdpo-marker", "gdpo-marker"):
    try: open(path, "w").write("x")
    except OSError: pass
print(open("gdpo-marker").read())
"""
    assert run(pool, source).stdout == b"x\n"
    assert not marker.exists() and not Path("/etc/gdpo-marker").exists()
    assert run(pool, "import os; print(os.path.exists('gdpo-marker'))").stdout == b"False\n"


def test_files_of_the_caller_keep_their_rights_times_and_content(pool: LocalPool) -> None:
    """Also those of its own uid, and also what takes no opening."""
    source = """
import os
path = input()
for change in (
    lambda each: os.chmod(each, 0),
    lambda each: os.chown(each, -1, os.getgid()),
    lambda each: os.utime(each, (1, 1)),
    lambda each: os.utime(each),
    lambda each: os.setxattr(each, "user.note", b"x"),
    lambda each: os.truncate(each, 0),
    lambda each: os.open(each, os.O_RDONLY | os.O_TRUNC),
    lambda each: os.link(each, "mine"),
    lambda each: os.rename(each, "mine"),
    lambda each: os.unlink(each),
    lambda each: os.fchmod(os.open(each, os.O_PATH), 0),
    lambda each: os.chmod(f"/proc/self/fd/{os.open(each, os.O_PATH)}", 0),
):
    for each in (path, os.path.dirname(path)):
        try: change(each)
        except OSError: pass
try: os.utime("/dev/null")
except OSError: pass
print("done")
"""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        mine = Path(folder, "mine")
        mine.write_text("x")
        mine.chmod(0o666)
        paths = (mine, mine.parent, Path(os.devnull))
        before = [path.stat() for path in paths]
        assert run(pool, source, str(mine)).stdout == b"done\n"
        fields = ("st_mode", "st_mtime_ns", "st_ctime_ns", "st_size", "st_nlink")
        for path, was in zip(paths, before, strict=True):
            now = path.stat()
            assert {name: getattr(now, name) for name in fields} == {name: getattr(was, name) for name in fields}, path


def test_the_files_of_a_program_together_have_a_limit(pool: LocalPool) -> None:
    source = "for i in range(8): open(str(i), 'wb').write(b'x' * (12 << 20))\nwhile True: pass"
    ended = run(pool, source, limits=Limits())
    own_tree = pool.mode in (isolation.FULL, isolation.NAMESPACES)
    assert ended.status == ("error" if own_tree else "output_limit"), ended
    assert ("No space left" if own_tree else "scratch_mb") in ended.detail


def test_no_process_outlives_its_test(pool: LocalPool) -> None:
    source = """
import os, time
try:
    for _ in range(5):
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
    print("forked")
except OSError:
    print("refused")
"""
    assert run(pool, source).stdout == (b"forked\n" if pool.can_fork else b"refused\n")
    (worker,) = pool._workers
    zygotes = [pid for keeper in worker.pids for pid in (keeper, *descendants(keeper))]
    assert len(zygotes) == (2 if pool.mode in (isolation.FULL, isolation.NAMESPACES) else 1)


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("import os\nos.kill(os.getppid(), 9)", None),
        ("import os\nos.kill(-1, 9)", "error"),
        ("import signal\nfor n in (2, 10, 14, 15, 24): signal.signal(n, signal.SIG_IGN)\nwhile True: pass", "timeout"),
        (
            "import threading\nwhile True:\n    threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()",
            None,  # its time or its threads are up, whichever comes first
        ),
        ("import resource\nresource.setrlimit(resource.RLIMIT_CPU, (-1, -1))", "error"),
        (
            "f = [open(0, closefd=False) for _ in range(100)]\ng = [open('x' + str(i), 'w') for i in range(100)]",
            "error",
        ),
        ("f = open('big', 'wb')\nwhile True: f.write(b'x' * 1000000)", "output_limit"),
        ("import os\nos.close(0); os.close(1); os.closerange(0, 64)", "ok"),
        ("import os\nos.chmod('.', 0); open('x', 'w')", "error"),
        ("import sys\nsys.exit('bye')", "error"),
        ("class E(Exception):\n    def __str__(self): raise E\nraise E", "error"),
        ("raise MemoryError", "memory"),
        ("import gc, sys\nfor o in gc.get_objects():\n    try: o.clear()\n    except BaseException: 0", None),
    ],
)
def test_a_hostile_program_harms_only_itself(pool: LocalPool, source: str, status: str | None) -> None:
    ended = run(pool, source, limits=Limits(cpu_s=0.5, memory_mb=256, processes=16))
    assert status is None or ended.status == status, ended
    assert run(pool, "print(input())", "still here").stdout == b"still here\n"


def test_endless_recursion_is_an_error(pool: LocalPool) -> None:
    assert run(pool, "def f(): return f()\nf()", limits=Limits()).status == "error"


@pytest.mark.parametrize("mode", [isolation.FULL, isolation.LANDLOCK_SECCOMP])
def test_waiting_for_a_processor_is_no_part_of_the_wall_time(mode: str) -> None:
    """Eight busy processes on the only core: 0.1 s of CPU time takes longer than the half second that it may last."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    busy = [sys.executable, "-c", "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"]
    others = [subprocess.Popen(busy, start_new_session=True) for _ in range(8)]
    try:
        with LocalPool(1, mode=mode) as pool:
            source = "import time\nwhile time.process_time() < 0.1: pass\nprint('done')"
            made = run(pool, source, limits=Limits(cpu_s=0.5, wall_factor=1.0))
    finally:
        os.sched_setaffinity(0, allowed)
        for other in others:
            other.kill()
            other.wait()
    assert (made.status, made.stdout) == ("ok", b"done\n")


def test_processes_share_one_memory_limit(pool: LocalPool) -> None:
    if not pool.can_fork:
        pytest.skip("no processes in this mode")
    source = "import os\nfor _ in range(3): os.fork()\nx = bytearray(100 << 20)\nwhile True: pass"
    assert run(pool, source, limits=Limits(cpu_s=20.0, memory_mb=256)).status == "memory"


def test_the_budget_of_a_program_ends_its_time_outs() -> None:
    (result,) = open_sandbox("local").run([Job("while True: pass", ("",) * 9, limits=Limits(cpu_s=0.2, budget_s=0.3))])
    assert [each.status for each in result.runs] == ["timeout"] * 9
    assert [each.cpu_s > 0 for each in result.runs] == [True, True] + [False] * 7


def test_a_program_that_sleeps_times_out_by_the_wall_clock() -> None:
    limits = Limits(cpu_s=0.1, wall_factor=2.0)
    (result,) = open_sandbox("local").run([Job("import time\ntime.sleep(100)", ("",), limits=limits)])
    assert result.runs[0].status == "timeout" and result.runs[0].cpu_s < 0.1


def test_a_zygote_that_is_lost_is_replaced_and_the_test_run_again() -> None:
    _, worker = isolation.start(isolation.AUTO, Worker)
    (pid,) = worker.pids
    os.kill(pid, signal.SIGKILL)
    assert worker.run(Job("print(1)", ("",))).runs[0].stdout == b"1\n"
    assert worker.pids != (pid,)
    worker.close()


@pytest.mark.parametrize("spare", range(7))
def test_a_caller_without_descriptors_gets_failures_and_loses_none(spare: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with LocalPool(1) as pool:
        before = os.listdir("/proc/self/fd")
        taken = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, before)) + 20, hard))
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.dup(0))
            for _ in range(spare):
                os.close(taken.pop())
            results = pool.run([Job("print(1)", ("",))] * 2)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for each in taken:
                os.close(each)
        assert [each.failure is None for each in results] == [spare == 6] * 2, results  # 2 a program, 4 a test
        assert run(pool, "print(1)").stdout == b"1\n"
        assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_zygote_that_is_lost_every_time_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    _, worker = isolation.start(isolation.AUTO, Worker)
    run, lost = Keeper.run, []

    def kill_first(keeper: Keeper, *arguments: object) -> object:
        lost.append(keeper.pid)
        halves = [os.pidfd_open(pid) for pid in (keeper.pid, *descendants(keeper.pid))]
        for half in halves:
            signal.pidfd_send_signal(half, signal.SIGKILL)
        for half in halves:  # each is readable when its process is dead
            select.select([half], [], [])
            os.close(half)
        return run(keeper, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Keeper, "run", kill_first)
    result = worker.run(Job("print(1)", ("",)))
    assert result.runs == () and f"{ATTEMPTS} attempts" in str(result.failure)
    assert len(set(lost)) == ATTEMPTS
    worker.close()


@pytest.mark.parametrize("mode", [isolation.FULL, isolation.LANDLOCK_SECCOMP])
def test_closing_leaves_no_process_and_no_folder(mode: str) -> None:
    with LocalPool(1, mode=mode) as pool:
        pids = [each for pid in pool.pids for each in (pid, *descendants(pid))]
        cwd = Path(f"/proc/{pids[-1]}/cwd").readlink()
        assert cwd.is_dir() or mode == isolation.FULL
    assert not cwd.exists()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    with pytest.raises(SandboxError, match="closed"):
        pool.run([Job("pass", ("",))])


def test_a_caller_that_is_killed_leaves_no_process_and_no_folder(python, tmp_path: Path) -> None:
    source = """
import os, signal
from gdpo_nemo.sandbox.pool import LocalPool
from gdpo_nemo.sandbox.jobs import Job
import threading
pool = LocalPool(1, mode="landlock_seccomp")
print(pool.pids[0], os.readlink(f"/proc/{pool.pids[0]}/cwd"), flush=True)
threading.Thread(target=pool.run, args=([Job("while True: pass", ("",))],)).start()
while not open(f"/proc/{pool.pids[0]}/task/{pool.pids[0]}/children").read():
    os.sched_yield()
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = python("-c", source, cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid, folder = done.stdout.split()
    until = time.monotonic() + 30
    while time.monotonic() < until and (Path(f"/proc/{pid}").exists() or Path(folder).exists()):
        os.sched_yield()
    assert not Path(f"/proc/{pid}").exists() and not Path(folder).exists()


@pytest.mark.parametrize("arch", list(syscalls.TABLES))
def test_the_filter_of_each_architecture_is_well_formed(arch: str) -> None:
    """Every jump lands inside the program, and every path ends in a verdict."""
    for code in (seccomp.base_filter(arch), seccomp.AloneFilter(arch)._code):
        size = len(code) // 8
        rows = [(code[8 * i] | code[8 * i + 1] << 8, code[8 * i + 2], code[8 * i + 3]) for i in range(size)]
        assert 4 < size < 4096 and rows[-1][0] == 6
        assert all(op in (6, 32) or (i + 1 + max(yes, no) < size) for i, (op, yes, no) in enumerate(rows))


def test_aarch64_and_x86_64_deny_the_same_calls() -> None:
    missing = {name for name in seccomp.DENIED + seccomp.EXEC if name not in syscalls.TABLES["aarch64"]}
    assert missing == {"mknod", "uselib", "iopl", "ioperm", "modify_ldt"}
    assert not [name for name in seccomp.DENIED + seccomp.EXEC if name not in syscalls.TABLES["x86_64"]]


def test_names_that_mean_nothing_are_refused() -> None:
    for refused in (lambda: LocalPool(1, mode="docker"), lambda: check_name("gvisor")):
        with pytest.raises(UnknownNameError):
            refused()
    for limits in ({"cpu_s": 0}, {"wall_factor": 0.5}, {"files": 3}, {"memory_mb": -1}):
        with pytest.raises(InputError, match=next(iter(limits))):
            Limits(**limits)
