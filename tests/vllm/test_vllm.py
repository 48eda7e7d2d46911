"""Evaluations of a small real model on a real vLLM: served, in this process, and killed in the middle."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gdpo_nemo.evaluation.store import EvaluationStore

pytestmark = pytest.mark.vllm
ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = [
    ("What is the capital of France? Answer in one sentence.", "The capital of France is Paris."),
    ("What is the capital of Italy? Answer in one sentence.", "The capital of Italy is Rome."),
    ("What colour is the sky on a clear day?", "blue"),
]


@pytest.fixture
def start(tmp_path, environment):
    """Start the program on the questions; ``start(*options)`` is its process."""
    file = tmp_path / "facts.jsonl"
    file.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in QUESTIONS))

    def call(*options):
        command = [sys.executable, str(ROOT / "eval" / "exact_answers.py"), "--questions", str(file)]
        command += ["--out", str(tmp_path / "out"), *map(str, options)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return call


@pytest.fixture
def store(tmp_path):
    return EvaluationStore(tmp_path / "out" / "facts")


def ended(process, code=0):
    out, err = process.communicate(timeout=900)
    assert process.returncode == code, f"{out}\n{err}"
    return out, err


def check_answers(store, samples):
    rows = store.generations()
    assert sorted((row["row_id"], row["index"]) for row in rows) == [(q, i) for q in "123" for i in range(samples)]
    assert "Paris" in next(row["response"] for row in rows if row["row_id"] == "1")
    assert all(1 < row["length_tokens"] <= 24 and row["prompt_tokens"] > 20 for row in rows)
    assert {row["finish_reason"] for row in rows} <= {"stop", "length"}
    assert all(row["truncated"] == (row["finish_reason"] == "length") for row in rows)
    assert store.state() == "complete"


def test_chat_endpoint(server, start, store):
    out, _ = ended(start("--endpoint", server.url, "--samples", 2, "--max-tokens", 24))
    check_answers(store, 2)
    assert "correct avg@2" in out and store.header["model"] == {"kind": "endpoint/chat", "name": "smollm2"}


def test_completions_endpoint_with_the_template_of_a_tokenizer(server, model, start, store):
    ended(start("--endpoint", server.url, "--max-tokens", 24, "--completions", model))
    check_answers(store, 1)


def test_a_seed_decides_a_sample(server, start, store, tmp_path):
    options = ("--endpoint", server.url, "--samples", 3, "--max-tokens", 24, "--temperature", 1, "--concurrency", 1)
    ended(start(*options))
    ended(start(*options, "--out", tmp_path / "again"))
    texts = [sorted((row["row_id"], row["index"], row["response"]) for row in s.generations())
             for s in (store, EvaluationStore(tmp_path / "again" / "facts"))]  # fmt: skip
    assert texts[0] == texts[1]
    assert len({text for _, _, text in texts[0]}) > 5, "samples of one question differ"


def test_an_answer_that_does_not_fit_is_a_failure_with_a_reason(server, start, store):
    _, err = ended(start("--endpoint", server.url, "--max-tokens", 600), code=1)
    assert "3 context_overflow" in err and "lower --max-tokens" in err
    assert store.generations() == []


def test_a_wrong_name_and_a_wrong_path_are_told(server, start):
    _, err = ended(start("--endpoint", server.url, "--served-model-name", "other"), code=3)
    assert "404" in err and "--served-model-name" in err
    _, err = ended(start("--endpoint", server.url + "/x"), code=3)
    assert "does not tell the model's name" in err


def test_a_server_killed_in_the_middle_loses_nothing(server, start, store):
    options = ("--endpoint", server.url, "--served-model-name", "smollm2", "--samples", 16, "--max-tokens", 24)
    process = start(*options, "--temperature", 1, "--concurrency", 4, "--retries", 0)
    deadline = time.monotonic() + 600
    while len(store.generations()) < 10:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.02)
    server.kill()
    _, err = ended(process, code=1)
    before = store.generations()
    assert "cannot be reached" in err and 10 <= len(before) < 48
    assert store.state() == "incomplete"
    server.start()
    ended(start(*options, "--temperature", 1, "--concurrency", 16))
    check_answers(store, 16)
    assert store.generations()[: len(before)] == before


def test_in_this_process(model, start, store):
    arguments = json.dumps({"enforce_eager": True, "max_model_len": 512})
    ended(start("--model", model, "--engine", "vllm", "--vllm", arguments, "--samples", 2, "--max-tokens", 24))
    check_answers(store, 2)
    assert store.header["model"]["kind"] == "vllm"
