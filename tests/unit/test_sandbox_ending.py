"""What comes after a program's last line, against the interpreter itself: the same output, the same kind of status."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gdpo_nemo.sandbox import fusion
from gdpo_nemo.sandbox.jobs import Job, TestRun
from gdpo_nemo.sandbox.opening import open_sandbox

STDIN = "3\n1 2 3\n"
WORD = "a word"
LATE = "class Late:\n    def __init__(self, text): self.text = text\n    def __del__(self): print(self.text)\n"
WRITER = "class Writer:\n    def write(self, text): sys.__stdout__.write(text)\n"
PROGRAMS = (
    "f = open(1, 'w')\nf.write('a file that nobody closes')",
    "import os\nprint('first')\nprint('second', file=(f := os.fdopen(1, 'w', closefd=False)))",
    "class Out:\n    def __init__(self): self.f = open(1, 'w')\no = Out()\no.f.write('x')",
    "import io\nb = io.BufferedWriter(io.FileIO(1, 'w', closefd=False))\nb.write(b'x')",
    "import io, sys\nout = io.TextIOWrapper(sys.stdout.buffer)\nout.write('x')",
    "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach())\nprint('x')",
    f"{LATE}late = Late('bye')\nlate.itself = late",
    f"{LATE}class Holder: late = Late('bye')",
    f"import io, sys\n{LATE}late = Late('seen')\nsys.stdout = io.StringIO()\nprint('lost')",
    "import math\nclass Late:\n    def __del__(self): print(math.pi)\nlate = Late()",
    f"import sys\n{WRITER}sys.stdout = Writer()\nprint('no flush')",
    f"import sys\n{WRITER}    def flush(self): raise ValueError\nsys.stdout = Writer()\nprint('x')",
    f"import os, sys\n{WRITER}    def flush(self): os._exit(0)\nsys.stdout = Writer()\n1 / 0",
    f"import sys\n{WRITER}    def flush(self): sys.exit(0)\nsys.stdout = Writer()\n1 / 0",
    "import sys\nprint('x')\nsys.stdout.close()",
    "import sys\nprint('x')\ndel sys.stdout",
    "import sys\nprint('x')\nsys.exit(10**30)",
    "import sys\nprint('x')\nsys.exit(256)",
    "import atexit, os\natexit.register(os._exit, 3)\nprint('x')",
    "import atexit\natexit.register(lambda: 1 / 0)\natexit.register(print, 'x')",
    "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), print('late'))).start()\nprint('main')",
    "import builtins\nbuiltins.print = lambda text: 1 / 0\nprint(1)",
    "from concurrent.futures import ThreadPoolExecutor\nprint(sum(ThreadPoolExecutor(16).map(abs, range(64))))",
    "import os\nos.write(1, b'a\\n')\nprint('b')\nos.write(1, b'c\\n')",
    "import sys\nprint(next(sys.stdin), sys.stdin.readline(), open(0).read(), end='')",
    "import os\ntry: os.write(0, b'9')\nexcept OSError as error: print(error)\nprint(input())",
    "import os\nfor name in ('_exit', 'write', 'ftruncate', 'lseek'): setattr(os, name, None)\nprint('x')",
    "import os\nos._exit = lambda status: None\n1 / 0",
    "print(-0.0, 1e-7, float('inf'), len(str(3**100000)))",
)  # fmt: skip


def script(folder: Path, source: str) -> tuple[bool, bytes]:
    """Whether the interpreter ends well with a script, and what it prints."""
    path, printed = folder / "solution.py", folder / "printed"
    path.write_text(source)
    command = [sys.executable, "-I", "-X", "int_max_str_digits=0", "-X", "utf8", str(path)]
    with printed.open("wb") as out:
        done = subprocess.run(command, input=STDIN.encode(), stdout=out, stderr=subprocess.DEVNULL, cwd=folder)
    return done.returncode == 0, printed.read_bytes()


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[str, TestRun]]:
    results = open_sandbox().run([Job(source, (STDIN,)) for source in PROGRAMS])
    yield {source: result.runs[0] for source, result in zip(PROGRAMS, results, strict=True)}


@pytest.mark.parametrize("source", PROGRAMS)
def test_a_program_ends_as_a_script_does(source: str, runs: dict[str, TestRun], tmp_path: Path) -> None:
    ended_well, printed = script(tmp_path, source)
    run = runs[source]
    assert run.status == ("ok" if ended_well else "error"), run
    assert run.stdout == printed


@pytest.mark.parametrize("source", PROGRAMS)
def test_the_driver_for_other_machines_ends_as_a_script_does(source: str, tmp_path: Path) -> None:
    assert script(tmp_path, fusion.driver(Job(source, ()), WORD)) == script(tmp_path, source)
