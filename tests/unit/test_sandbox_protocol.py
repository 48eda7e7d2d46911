"""The socket of a zygote, with everything on it that should not be there."""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gdpo_nemo.sandbox import isolation
from gdpo_nemo.sandbox.jobs import Job, Limits, TestRun, classify, value_of
from gdpo_nemo.sandbox.keeper import Keeper, _numbers, memory_file

NUM_MESSAGES = 300
GOOD = {"call": None, "prelude": True, "limits": _numbers(Limits(cpu_s=0.2))}


@pytest.fixture(scope="module")
def keeper() -> Iterator[Keeper]:
    _, made = isolation.start(isolation.AUTO, Keeper)
    yield made
    made.close()


def send(keeper: Keeper, data: bytes, num_descriptors: int = 5) -> dict[str, object]:
    with ExitStack() as opened:
        files = [memory_file(opened, b"" if place else b"print(1)") for place in range(num_descriptors)]
        keeper._socket.settimeout(30)
        socket.send_fds(keeper._socket, [data], files)
        return keeper._receive()


def mangled(seed: int) -> bytes:
    """A message with something wrong: bytes, types, depth, numbers."""
    draw = random.Random(seed)
    kind = draw.randrange(6)
    if kind == 0:
        return draw.randbytes(draw.randrange(1, 4000))
    if kind == 1:
        data = bytearray(json.dumps(GOOD).encode())
        data[draw.randrange(len(data))] = draw.randrange(256)
        return bytes(data)
    if kind == 2:
        return b"[" * draw.randrange(1, 30_000)
    value = draw.choice([None, -1, 0, 1e308, "x", [], {}, True, 1 << 70])
    if kind == 3:
        return json.dumps(GOOD | {draw.choice(["limits", "call"]): value}).encode()
    if kind == 4:
        limits = GOOD["limits"] | {draw.choice(sorted(GOOD["limits"])): value}
        return json.dumps(GOOD | {"limits": limits}).encode()
    return json.dumps(value).encode()


def test_no_message_hangs_or_ends_a_zygote(keeper: Keeper) -> None:
    answers = [send(keeper, mangled(seed), seed % 7) for seed in range(NUM_MESSAGES)]
    assert all("failure" in answer or "end" in answer for answer in answers)
    assert not [answer for answer in answers if "process that runs programs ended" in str(answer.get("failure"))]
    assert sum("failure" in answer for answer in answers) > NUM_MESSAGES / 2
    assert "end" in send(keeper, json.dumps(GOOD).encode()) or pytest.fail("a good message is not answered")


def test_descriptors_do_not_pile_up(keeper: Keeper) -> None:
    source = "import os, sys\nprint(os.dup(0))"
    with ExitStack() as opened:
        files = [memory_file(opened, source.encode()), memory_file(opened, flags=os.MFD_ALLOW_SEALING)]
        runs = [keeper.run(Job(source, ("",)), *files, "") for _ in range(3)]
    assert {run.stdout for run in runs if isinstance(run, TestRun)} == {b"3\n"}


@pytest.mark.parametrize(
    ("report", "status", "value"),
    [
        (b'F{"fault": "MemoryError", "detail": "", "memory": true}', "memory", None),
        (b'F{"fault": "E", "detail": "x", "memory": 1}', "error", None),
        (b"F" + b"[" * 100_000, "error", None),
        (b'F{"fault": "E", "detail": "", "memory": true, "more": [' + b"[]," * 100_000 + b"0]}", "error", None),
        (b"F\xff\xfe", "error", None),
        (b"Fnull", "error", None),
        (b"", "error", None),
        (b"V3", "error", "3"),
    ],
)
def test_whatever_a_program_writes_into_its_report_is_read_with_care(report: bytes, status: str, value: str) -> None:
    answer = {"end": "exit", "code": 1, "stopped": None, "compiled": True, "cpu_s": 0.1, "wall_s": 0.1, "memory": 1}
    assert classify(answer, Limits(), 0, report)[0] == status
    assert value_of(report) == value


def test_a_report_cannot_make_a_failure_pass() -> None:
    answer = {"end": "signal", "code": 11, "stopped": None, "compiled": True, "cpu_s": 0.1, "wall_s": 0.1, "memory": 1}
    assert classify(answer, Limits(), 0, b"V3") == ("error", "signal 11", False)
    assert classify(answer | {"stopped": "wall"}, Limits(), 0, b"V3")[0] == "timeout"
    assert classify(answer | {"end": "exit", "code": 0, "cpu_s": 99.0}, Limits(), 0, b"V3")[0] == "timeout"
