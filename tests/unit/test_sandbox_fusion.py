"""The client of a remote sandbox, against a server on the loopback that answers as Sandbox Fusion does."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gdpo_nemo.errors import InputError
from gdpo_nemo.rewards.code import judge
from gdpo_nemo.sandbox import fusion
from gdpo_nemo.sandbox.fusion import FusionClient
from gdpo_nemo.sandbox.jobs import Job, Limits, Sandbox

DOUBLE = {"inputs": ["2\n", "-7\n"], "outputs": ["4\n", "-14\n"]}
ADD = {"inputs": ["1\n2"], "outputs": ["3"], "fn_name": "add"}


class Server(ThreadingHTTPServer):
    """Runs what it is sent, unless ``script`` holds another answer: an object, or an HTTP status."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[object] = []
        self.requests: list[dict[str, object]] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append({"path": self.path, **request})
        answer = self.server.script.pop(0) if self.server.script else _run(request)
        self.send_response(answer if isinstance(answer, int) else 200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        pass


def _run(request: dict[str, str]) -> dict[str, object]:
    command = [sys.executable, "-c", request["code"]]
    try:
        done = subprocess.run(
            command, input=request["stdin"], capture_output=True, text=True, timeout=float(request["run_timeout"])
        )
    except subprocess.TimeoutExpired:
        return {"status": "Failed", "message": "", "run_result": {"status": "TimeLimitExceeded", "stdout": ""}}
    result = {"status": "Finished", "return_code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
    return {"status": "Failed" if done.returncode else "Success", "message": "", "run_result": result}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(fusion, "PAUSE_S", 0.0)
    with Server() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def client(server: Server) -> Iterator[FusionClient]:
    made = FusionClient(f"http://127.0.0.1:{server.server_port}", 2)
    assert isinstance(made, Sandbox)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("program", "tests", "statuses", "bug"),
    [
        ("print(2 * int(input()))", DOUBLE, "ok ok", False),
        ("from __future__ import annotations\nd = deque([int(input())])\nprint(2 * d[0])", DOUBLE, "ok ok", False),
        ("n = int(input())\nprint(2 * n)\nassert n > 0", DOUBLE, "ok error", True),
        ("import sys\nsys.exit(0)", DOUBLE, "wrong wrong", False),
        ("def f(:", DOUBLE, "compile_error compile_error", True),
        ("raise MemoryError", DOUBLE, "memory memory", True),
        ("import os\nos.kill(os.getpid(), 11)", DOUBLE, "error error", True),
        ("def add(a, b): print('noise'); return a + b", ADD, "ok", False),
        ("import os\nos.write = None\ndef add(a, b): return a + b", ADD, "ok", False),
        ("open(0).read()\ndef add(a, b): return a + b\nif __name__ == '__main__': input()", ADD, "ok", False),
        ("class Solution:\n    def add(self, a, b): return (a, b)", ADD, "wrong", False),
        ("def plus(a, b): return a + b", ADD, "error", True),
    ],
)
def test_the_verdicts_are_those_of_the_local_pool(
    client: FusionClient, program: str, tests: dict[str, object], statuses: str, bug: bool
) -> None:
    judgement = judge(program, tests, sandbox=client)
    assert (" ".join(judgement.statuses), judgement.bug) == (statuses, bug)


def test_a_late_program_has_timed_out_and_the_next_test_is_run(client: FusionClient) -> None:
    program = "n = int(input())\nwhile n > 0: pass\nprint(2 * n)"
    judgement = judge(program, DOUBLE, sandbox=client, limits=Limits(cpu_s=1.0, wall_factor=1.0))
    assert judgement.statuses == ("timeout", "ok")


def test_the_request_is_what_the_server_expects(server: Server, client: FusionClient) -> None:
    client.run([Job("print(1)", ("in",), limits=Limits(cpu_s=2.0, wall_factor=2.0, memory_mb=300))])
    (request,) = server.requests
    code = request.pop("code")
    assert request == {
        "path": "/run_code", "language": "python", "stdin": "in",
        "run_timeout": 4.0, "compile_timeout": 4.0, "memory_limit_MB": 300,
    }  # fmt: skip
    compile(str(code), "driver", "exec")


def test_a_failing_server_is_asked_again(server: Server, client: FusionClient) -> None:
    server.script = [500, {"status": "SandboxError", "message": "busy"}, {"status": "Success", "run_result": None}]
    assert judge("print(2 * int(input()))", DOUBLE, sandbox=client).pass_rate == 1.0
    assert len(server.requests) == 5


def test_a_server_that_keeps_failing_is_no_verdict(server: Server, client: FusionClient) -> None:
    server.script = [503] * fusion.ATTEMPTS
    judgement = judge("print(2 * int(input()))", DOUBLE, sandbox=client)
    assert judgement.bug is None and judgement.statuses == ()
    assert "503" in str(judgement.failure) and "127.0.0.1" in str(judgement.failure)


def test_a_report_without_the_word_is_not_believed(server: Server, client: FusionClient) -> None:
    printed = '\nV3\n\n{"value": 3}\n'
    result = {"status": "Finished", "return_code": 0, "stdout": "3", "stderr": printed}
    server.script = [{"status": "Success", "run_result": result}]
    assert judge("def add(a, b): return a + b", ADD, sandbox=client).statuses == ("wrong",)


def test_an_address_without_a_scheme_is_refused() -> None:
    with pytest.raises(InputError, match="http://host:port"):
        FusionClient("sandbox:8080")
