"""An evaluation over HTTP, by a server on this machine that answers, dawdles and fails as a test scripts it."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from scripted_server import CLOSE, Reply, ScriptedServer, chat, refusal

from gdpo_nemo.evaluation.command_line import execute
from gdpo_nemo.evaluation.store import EvaluationStore

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "eval" / "exact_answers.py"
NUM_QUESTIONS, NUM_SAMPLES = 5, 3


def right(body, _nth=0):
    """What the questions ask for: their number, doubled."""
    return chat(str(2 * int(body["messages"][-1]["content"].split()[-1])))


def load_program():
    spec = importlib.util.spec_from_file_location("exact_answers_program", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PROGRAM


@pytest.fixture
def serve(monkeypatch):
    """Start a server with a script."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    servers = []

    def call(script=right):
        servers.append(ScriptedServer(script))
        return servers[-1]

    yield call
    for server in servers:
        server.stop()


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "doubles.jsonl"
    rows = [{"id": f"q{n}", "question": f"Double of {n}", "answer": str(2 * n)} for n in range(NUM_QUESTIONS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def arguments(questions, tmp_path):
    """Options of an evaluation at a server: ``arguments(server, "--samples", 2)``."""

    def call(server, *more):
        line = ("--questions", questions, "--endpoint", server.url, "--samples", NUM_SAMPLES, "--out", tmp_path / "out")
        return [str(part) for part in (*line, *more)]

    return call


@pytest.fixture
def run(arguments, capsys, monkeypatch):
    """Run the program in this process with pauses of a millisecond: exit code, standard output and error."""
    monkeypatch.setattr("gdpo_nemo.evaluation.pacing.Pace.wait_s", lambda *_: 0.001)

    def call(server, *more):
        code = execute(load_program(), arguments(server, *more))
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def store(tmp_path):
    return EvaluationStore(tmp_path / "out" / "doubles")


def keys(rows):
    return sorted((row["row_id"], row["index"]) for row in rows)


EVERY_SAMPLE = [(f"q{q}", index) for q in range(NUM_QUESTIONS) for index in range(NUM_SAMPLES)]


def test_every_question_is_asked_n_times_with_a_seed_of_its_own(serve, run, store):
    server = serve()
    code, out, err = run(server, "--temperature", "0.5", "--max-tokens", "7", "--seed", "3")
    assert code == 0, err
    assert keys(store.generations()) == keys(store.scores()) == EVERY_SAMPLE
    assert len({body["seed"] for _, _, body in server.asked}) == len(server.asked) == 15
    path, _, body = server.asked[0]
    assert path == "/v1/chat/completions"
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.5, 7)
    assert "correct avg@3" in out and " 1.00 " in out and "15 of 15 samples" in err
    assert store.state() == "complete" and store.result()["answered"] == 15
    assert store.header["model"] == {"kind": "endpoint/chat", "name": "m"}


def test_the_seeds_follow_from_the_root_seed(serve, run, tmp_path):
    seeds = []
    for seed, out in ((0, "a"), (0, "b"), (1, "c")):
        server = serve()
        run(server, "--seed", str(seed), "--out", str(tmp_path / out))
        seeds.append(sorted(body["seed"] for _, _, body in server.asked))
    assert seeds[0] == seeds[1] != seeds[2]


def test_a_finished_evaluation_asks_nothing_again(serve, run):
    server = serve()
    first = run(server)
    assert run(server)[:2] == first[:2]
    assert len(server.asked) == 15


PASSING = [
    refusal(429, "slow down"),
    refusal(500, "oops"),
    refusal(503, "starting"),
    Reply(body=b"<html>not json"),
    Reply(body=b'{"choices": []}'),
    Reply(body=b'{"choices": [{"message": {"content": 7}}]}'),
    chat("half an ans", finish="abort"),
    Reply(body=b'{"choices": [{"mess', promised=100),
    CLOSE,
]


@pytest.mark.parametrize("trouble", PASSING)
def test_trouble_that_passes_changes_nothing(trouble, serve, run, store):
    code, _, err = run(serve(lambda body, nth: trouble if nth < 2 else right(body)))
    assert code == 0, err
    assert keys(store.generations()) == EVERY_SAMPLE
    assert {row["values"]["correct"] for row in store.scores()} == {1.0}
    assert store.failures() == []


@pytest.mark.parametrize("trouble", PASSING)
def test_trouble_that_stays_is_a_failure_of_its_sample_and_never_a_wrong_answer(trouble, serve, run, store):
    def script(body, _nth):
        return trouble if "of 2" in body["messages"][-1]["content"] and not healed else right(body)

    healed, server = [], serve(script)
    code, _, err = run(server, "--retries", "2")
    assert code == 1 and "3 samples have no answer" in err and "--allow-incomplete" in err
    assert store.state() == "incomplete" and store.result() is None
    assert keys(store.failures()) == [("q2", index) for index in range(3)]
    assert {row["attempts"] for row in store.failures()} == {3}
    assert keys(store.scores()) == keys(store.generations()) == [key for key in EVERY_SAMPLE if key[0] != "q2"]

    asked = len(server.asked)
    code, out, _ = run(server, "--retries", "0", "--allow-incomplete")
    assert code == 0 and len(server.asked) == asked + 3, "only what is missing is asked again"
    assert out.splitlines()[1].split()[-3:] == ["12", "0", "3"], "samples, ungraded, failed"
    assert store.state() == "incomplete" and store.result()["missing"] == 3

    healed.append(True)
    code, out, _ = run(server)
    assert code == 0 and out.splitlines()[1].split()[-3:] == ["15", "0", "0"]
    assert keys(store.generations()) == EVERY_SAMPLE
    assert store.failures() == [] and store.state() == "complete"


def test_an_evaluation_without_any_answer_is_incomplete_whatever_is_allowed(run, serve):
    server = serve(lambda body, nth: refusal(400))
    code, _, err = run(server, "--retries", "0", "--allow-incomplete")
    assert code == 1 and "have no answer" in err and "unknown grader" not in err


def test_a_late_answer_is_asked_for_again(serve, run, store):
    release = threading.Event()

    def script(body, nth):
        if nth == 0 and "of 1" in body["messages"][-1]["content"]:
            release.wait(30)
        return right(body)

    code, _, err = run(serve(script), "--timeout", "0.3")
    release.set()
    assert code == 0, err
    assert keys(store.generations()) == EVERY_SAMPLE


def test_retry_after_is_kept(serve, run, store):
    moments = []

    def script(body, nth):
        moments.append((nth, time.monotonic()))
        return refusal(429, "later", Retry_After="1") if nth == 0 else right(body)

    code, _, _ = run(serve(script), "--samples", "1", "--limit", "1")
    (_, first), (_, second) = moments
    assert code == 0 and second - first >= 1


def test_an_overflow_of_the_context_fails_at_once_and_says_what_to_do(serve, run, store):
    message = "This model's maximum context length is 64 tokens. However, you requested 99 tokens"
    server = serve(lambda body, _: refusal(400, message) if "of 0" in body["messages"][-1]["content"] else right(body))
    code, _, err = run(server)
    assert code == 1 and "3 context_overflow" in err and "lower --max-tokens" in err
    assert {(row["kind"], row["attempts"]) for row in store.failures()} == {("context_overflow", 1)}


def test_another_rejection_is_not_repeated(serve, run, store):
    server = serve(lambda *_: refusal(400, "bad logit_bias"))
    code, _, err = run(server)
    assert code == 1 and "15 rejected" in err and "bad logit_bias" in err
    assert len(server.asked) == 15


@pytest.mark.parametrize("status", [401, 403, 404, 301])
def test_a_wrong_key_or_address_stops_at_once(status, serve, run, store, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sesame")
    server = serve(lambda *_: refusal(status, "go away", Location="/elsewhere"))
    code, _, err = run(server, "--api-key-env", "SOME_KEY", "--concurrency", "1")
    assert code == 3 and f"answers {status}" in err and "--api-key-env" in err and len(server.asked) == 1
    assert store.failures() == [] == store.generations() and store.state() == "started"
    assert server.asked[0][1]["Authorization"] == "Bearer sesame"
    written = b"".join(path.read_bytes() for path in store.path.rglob("*") if path.is_file())
    assert b"sesame" not in written and "sesame" not in err


def test_a_dead_server_ends_the_evaluation_without_losing_anything(serve, run, store):
    server = serve()

    def script(body, _nth):
        if len(server.asked) == 6:
            server.server.socket.shutdown(socket.SHUT_RDWR)  # a closed one listens on while it is polled
        return CLOSE if len(server.asked) >= 6 else right(body)

    server.script = script
    code, _, err = run(server, "--concurrency", "1", "--retries", "1", "--served-model-name", "m")
    assert code == 1 and "cannot be reached" in err
    assert len(store.generations()) == 5
    assert len(store.failures()) == 8, "the second attempt at one that broke off, and seven more, found nobody"

    code, _, err = run(serve(), "--served-model-name", "m")
    assert code == 0, err
    assert keys(store.generations()) == EVERY_SAMPLE


def test_empty_and_truncated_answers_are_answers(serve, run, store):
    replies = {"0": chat("", tokens=0), "1": chat(None), "2": chat("4", finish="length", tokens=512)}
    code, _, _ = run(serve(lambda body, _: replies.get(body["messages"][-1]["content"][-1]) or right(body)))
    assert code == 0
    by_id = {row["row_id"]: row for row in store.generations()}
    assert by_id["q0"]["response"] == by_id["q1"]["response"] == ""
    assert by_id["q2"]["truncated"] and by_id["q2"]["length_tokens"] == 512
    values = {row["row_id"]: (row["values"]["correct"], row["reasons"]["correct"]) for row in store.scores()}
    assert values["q0"] == (0.0, ["mismatch"]) and values["q2"] == (0.0, ["truncated"]) and values["q3"][0] == 1.0
    assert (store.result()["empty"], store.result()["truncated"]) == (6, 3)


@pytest.mark.parametrize(
    ("choice", "tokens"),
    [
        ({"finish_reason": "stop", "stop_reason": None}, 7),
        ({"finish_reason": "tool_calls", "stop_reason": None}, 7),
        ({"finish_reason": "stop", "stop_reason": 151643}, 7),
        ({"finish_reason": "stop", "stop_reason": "\n\n"}, 8),
        ({"finish_reason": "length", "stop_reason": None}, 8),
        ({"finish_reason": "stop"}, 8),
    ],
)
def test_an_end_token_that_the_server_counted_is_no_part_of_the_length(choice, tokens, serve, run, store):
    def script(body, _nth):
        answer = json.loads(chat("6", tokens=8).body)
        answer["choices"][0] |= choice
        return Reply(body=json.dumps(answer).encode())

    run(serve(script))
    assert {row["length_tokens"] for row in store.generations()} == {tokens}


def test_reasoning_that_the_server_tells_apart_is_put_in_front(serve, run, store):
    run(serve(lambda *_: chat("8", reasoning_content="2 x 4")), "--samples", "1")
    assert store.generations()[0]["response"] == "<think>\n2 x 4\n</think>\n8"


def test_another_setting_is_another_evaluation(serve, run):
    server = serve()
    run(server)
    code, _, err = run(server, "--temperature", "1")
    assert code == 1 and "sampling.temperature: 0.0 there, 1.0 now" in err and "--out" in err
    code, _, err = run(server, "--served-model-name", "other")
    assert code == 1 and "model.name" in err


def test_a_server_with_several_models_asks_for_one(serve, run):
    server = serve()
    server.models = ["a", "b"]
    code, _, err = run(server)
    assert code == 3 and "a, b" in err and "--served-model-name" in err


def test_another_grader_scores_the_same_answers(serve, run, questions, tmp_path, store, capsys):
    server = serve(lambda *_: chat("Let me see.\n4"))
    run(server)
    line = ["rescore", "--grader", "last_line", "--questions", str(questions), "--out", str(tmp_path / "out")]
    assert execute(load_program(), line) == 0 and len(server.asked) == 15
    assert "last_line differs from exact in samples: correct 3" in capsys.readouterr().out
    assert sum(row["values"]["correct"] for row in store.scores("last_line")) == 3
    assert sum(row["values"]["correct"] for row in store.scores()) == 0
    before = {path: path.read_bytes() for path in (store.path / "scores").iterdir()}
    assert execute(load_program(), line) == 0
    assert {path: path.read_bytes() for path in (store.path / "scores").iterdir()} == before


def sampled(body, _nth):
    """An answer that only the seed decides."""
    return chat(f"answer {body['seed']}")


def texts(store):
    return sorted((row["row_id"], row["index"], row["response"]) for row in store.generations())


@pytest.fixture
def start(arguments, environment):
    """Start the program in a process of its own, three samples at a time."""

    def call(server, *more):
        command = [sys.executable, str(SCRIPT), *arguments(server, "--concurrency", "3", *more)]
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in a shell's background has none
        )  # fmt: skip

    return call


def wait_until(condition, process):
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.01)


def test_an_interrupted_evaluation_says_how_to_go_on(serve, start, store):
    held = threading.Semaphore(2)
    server = serve(lambda body, nth: (held.acquire(), sampled(body, nth))[1])
    process = start(server)
    wait_until(lambda: len(store.generations()) == 2, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    held.release(100)
    assert process.returncode == 130 and "the same command goes on" in err and "Traceback" not in err
    assert len(store.generations()) == 2 and store.failures() == []


@pytest.mark.parametrize("answered", [0, 4, 9])
def test_after_kill_9_the_same_command_gives_the_samples_of_an_undisturbed_one(answered, serve, start, tmp_path, store):
    undisturbed = start(serve(sampled), "--out", str(tmp_path / "whole"))
    held = threading.Semaphore(answered)
    server = serve(lambda body, nth: (held.acquire(), sampled(body, nth))[1])
    process = start(server)
    wait_until(lambda: len(server.asked) == answered + 3 and len(store.generations()) == answered, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    with open(store.path / "generations.jsonl", "ab") as file:
        file.write(b'{"row_id": "q4", "index": 2, "resp')  # what a kill within a write leaves
    held.release(100)
    again = start(server)
    _, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    assert "half-written line of 34 bytes" in err
    assert undisturbed.communicate(timeout=120) and undisturbed.returncode == 0
    assert texts(store) == texts(EvaluationStore(tmp_path / "whole" / "doubles"))
    assert keys(store.generations()) == keys(store.scores()) == EVERY_SAMPLE
    assert len(server.asked) == 15 + 3, "what was under way is asked again, what was written is not"


def test_two_processes_do_not_share_an_evaluation(serve, run, store):
    store.path.mkdir(parents=True)
    with store.lock():
        code, _, err = run(serve())
    assert code == 1 and "is in use by process" in err
