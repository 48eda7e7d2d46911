"""The process that runs the library: one JSON line in, two out, until it is killed or its parent is gone.

    in   {"grader": ..., "gold": ..., "answer": ...}
    out  {"gold_read": true}      the gold is readable (strict only): what happens from here on is the answer's doing
    out  {"verdict": true | false | null, "reason": ...}

It is started as a new interpreter, not forked, and limits itself: memory, CPU time for each line, no core dump. It ends
when its input does, or when it finds itself adopted.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
from collections.abc import Iterator
from typing import Any, Final

_LOOK_FOR_PARENT_S: Final = 5.0


def main(memory_bytes: int, cpu_s: int) -> None:
    """Serve until the input ends. Never returns normally before that."""
    output = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # what the library prints is no answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    parent = os.getppid()
    try:
        from gdpo_nemo.rewards.math import library

        library.start()
    except ImportError as error:
        _tell(output, {"missing": str(error)})
        return
    _limit(resource.RLIMIT_AS, memory_bytes)
    _tell(output, {"ready": os.getpid()})
    for line in _lines(parent):
        used = resource.getrusage(resource.RUSAGE_SELF)
        _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + cpu_s)
        _tell(output, _answer(json.loads(line), output))


def _answer(job: dict[str, Any], output: Any) -> dict[str, Any]:
    from gdpo_nemo.rewards.math import library

    try:
        if job["grader"] == "math_verify":
            return {"verdict": library.verify_plain(job["gold"], job["answer"])}
        if job["grader"] == "dler_compat":
            from gdpo_nemo.rewards.math.dler import accepts

            return {"verdict": accepts(job["gold"], job["answer"])}
        library.check_gold(job["gold"])
        _tell(output, {"gold_read": True})
        return {"verdict": library.equal(job["gold"], job["answer"])}
    except library.UnreadableGoldError:
        return {"verdict": None, "reason": "gold_unparsable"}
    except MemoryError:
        return {"verdict": False, "reason": "out_of_memory"}
    except RecursionError:
        return {"verdict": False, "reason": "too_deep"}
    except Exception as error:  # the library raises what its parser and SymPy raise, of any type
        return {"verdict": False, "reason": f"library_error:{type(error).__name__}"}


def _lines(parent: int) -> Iterator[str]:
    buffer = b""
    while True:
        readable, _, _ = select.select([0], [], [], _LOOK_FOR_PARENT_S)
        if not readable:
            if os.getppid() != parent:
                return
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            return
        buffer += chunk
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            yield line.decode()


def _limit(which: int, amount: int) -> None:
    _, hard = resource.getrlimit(which)
    resource.setrlimit(which, (amount if hard == resource.RLIM_INFINITY else min(amount, hard), hard))


def _tell(output: Any, message: dict[str, Any]) -> None:
    try:
        output.write(json.dumps(message) + "\n")
    except BrokenPipeError:
        sys.exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
