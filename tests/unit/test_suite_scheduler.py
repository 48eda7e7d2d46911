import os
import signal
import time
from pathlib import Path

import pytest

from gdpo_nemo.suite import scheduler
from gdpo_nemo.suite.scheduler import Interrupted, Job, run_jobs


class Record:
    """A watcher that remembers, and may act on a tick."""

    def __init__(self, on_tick=lambda: None):
        self.events, self.most_at_once, self._running, self._on_tick = [], 0, 0, on_tick

    def started(self, job):
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        self.events.append(("started", job.name))

    def ended(self, ended):
        self._running -= 1
        self.events.append(("ended", ended.job.name))

    def tick(self):
        self._on_tick()


def shell(tmp_path, name, script, **environment):
    return Job(name, ["sh", "-c", script], tmp_path / f"{name}.log", environment)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"


def test_a_failure_does_not_stop_the_others(tmp_path):
    jobs = [
        shell(tmp_path, "bad", "echo why; exit 3"),
        shell(tmp_path, "good", "echo fine"),
        shell(tmp_path, "shot", "kill -9 $$"),
    ]
    ended = run_jobs(jobs, 1, Record())
    assert [(one.job.name, one.exit_code) for one in ended] == [("bad", 3), ("good", 0), ("shot", -9)]
    assert (tmp_path / "bad.log").read_text() == "why\n"


def test_no_more_run_at_once_than_asked_for_and_in_order(tmp_path):
    record = Record()
    run_jobs([shell(tmp_path, str(i), "sleep 0.05") for i in range(5)], 2, record)
    assert record.most_at_once == 2
    assert [name for kind, name in record.events if kind == "started"] == ["0", "1", "2", "3", "4"]


def test_a_job_knows_its_parent_and_its_environment_and_appends_to_its_log(tmp_path):
    job = shell(tmp_path, "env", 'echo "$GDPO_PARENT $COLOUR"; echo oops >&2', COLOUR="blue")
    run_jobs([job], 1, Record())
    run_jobs([job], 1, Record())
    assert job.log.read_text() == f"{os.getpid()} blue\noops\n" * 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_every_child_and_starts_no_other(tmp_path, number):
    handler = signal.getsignal(number)
    jobs = [shell(tmp_path, name, "sleep 60 & echo $$ $!; wait") for name in ("a", "b", "c")]

    def interrupt():
        if all((tmp_path / f"{name}.log").read_text().count("\n") for name in ("a", "b")):
            os.kill(os.getpid(), number)

    with pytest.raises(Interrupted, match=number.name):
        run_jobs(jobs, 2, Record(interrupt))
    pids = [int(pid) for name in ("a", "b") for pid in (tmp_path / f"{name}.log").read_text().split()]
    deadline = time.monotonic() + 5
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(pids) == 4 and not any(map(alive, pids))
    assert not (tmp_path / "c.log").exists()
    assert signal.getsignal(number) == handler


def test_children_end_when_the_watcher_fails(tmp_path):
    job = shell(tmp_path, "a", "echo $$; sleep 60")

    def fail():
        if job.log.read_text():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_jobs([job], 1, Record(fail))
    assert not alive(int(job.log.read_text()))


def test_a_child_that_ignores_the_request_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "GRACE_S", 0.2)
    job = shell(tmp_path, "stubborn", "trap : TERM; echo $$; while :; do sleep 0.05; done")

    def interrupt():
        if job.log.read_text():
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        run_jobs([job], 1, Record(interrupt))
    assert not alive(int(job.log.read_text().split()[0]))
