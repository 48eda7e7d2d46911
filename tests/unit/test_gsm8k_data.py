import importlib.util
import json
from pathlib import Path

import pytest
from scripted_server import ScriptedServer, chat

from gdpo_nemo.data.gsm8k import gold_of, read_gsm8k, statistics
from gdpo_nemo.errors import InputError, UnknownNameError
from gdpo_nemo.evaluation.command_line import execute
from gdpo_nemo.prompts.tool_calling import template
from gdpo_nemo.suite.command_line import execute as gdpo

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    {
        "question": "A crate has 3 rows of 6 jars. How many jars is that?",
        "answer": "Each row has 6 jars.\nThat makes 3 * 6 = <<3*6=18>>18 jars.\n#### 18",
    },
    {
        "question": "Two lorries carry 540 kg each. How much do they carry?",
        "answer": "2 * 540 = <<2*540=1080>>1,080 kg.\nSo 1,080 - 0 = <<1080-0=1080>>1,080.\n#### 1,080",
    },
    {"question": "It was 2 degrees and fell by 5. What is it now?", "answer": "2 - 5 = <<2-5=-3>>-3\n#### -3"},
    {"question": "Half of 5 litres?", "answer": "5 / 2 = <<5/2=2.5>>2.5\n#### 2.5"},
]


def program():
    spec = importlib.util.spec_from_file_location("_gsm8k", ROOT / "eval" / "gsm8k.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PROGRAM


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "test.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    return path


def test_the_gold_is_what_follows_the_marker():
    assert gold_of("so\n#### 18 ") == "18" and gold_of(" 18\n") == "18"
    assert gold_of("a #### 1 #### 2") == "1" and gold_of("####") == ""


def test_rows_and_their_counts(file):
    rows = read_gsm8k(file)
    assert [gold_of(row.gold) for row in rows] == ["18", "1,080", "-3", "2.5"]
    assert rows[0].fields["question"] == ROWS[0]["question"]
    assert statistics(rows) == {
        "rows": 4, "digits": 1, "separators": 1, "signed": 1, "decimal": 1, "unreadable": 0,
        "calculations_median": 1, "calculations_max": 2,
    }  # fmt: skip


def test_parquet_as_published_reads_the_same(file, tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "test.parquet")
    published = read_gsm8k(tmp_path / "test.parquet")
    assert [(row.fields["question"], row.gold) for row in published] == [
        (row.fields["question"], row.gold) for row in read_gsm8k(file)
    ]


@pytest.mark.parametrize(
    ("row", "error", "words"),
    [
        ({"question": "x", "answer": "just 18"}, InputError, "line 5: column 'answer' ends in 'just 18'"),
        ({"question": "x", "answer": "####"}, InputError, "line 5: column 'answer' ends in"),
        ({"question": "  ", "answer": "#### 18"}, InputError, "line 5 has no text in column 'question'"),
        ({"question": None, "answer": "#### 18"}, InputError, "line 5 has no text in column 'question'"),
        ({"question": "x", "answer": None}, InputError, "line 5 has no value in column 'answer'"),
        ({"problem": "x", "answer": "#### 18"}, UnknownNameError, "question"),
    ],
)
def test_a_row_of_another_schema_is_named(row, error, words, file):
    file.write_text(f"{file.read_text()}\n{json.dumps(row)}")
    with pytest.raises(error, match=words):
        read_gsm8k(file)


def test_the_data_set_is_locked_and_counted(file, tmp_path, monkeypatch, capsys):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.chdir(tmp_path)
    for split in ("train", "test"):
        (tmp_path / "mine" / "main").mkdir(parents=True, exist_ok=True)
        parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / f"mine/main/{split}-00000-of-00001.parquet")
    assert gdpo(["data", "fetch", "gsm8k", "--offline"]) == 3
    assert "openai/gsm8k" in capsys.readouterr().err
    assert gdpo(["data", "fetch", "gsm8k", "--from", "mine"]) == 0
    assert "MIT" in capsys.readouterr().out
    assert gdpo(["data", "stats", "gsm8k"]) == 0
    assert "1 of 4 golds are digits alone" in capsys.readouterr().out
    (tmp_path / "data/gsm8k/main/test-00000-of-00001.parquet").write_bytes(b"other")
    assert gdpo(["data", "verify", "gsm8k"]) == 1
    assert "test-00000-of-00001.parquet" in capsys.readouterr().err


ANSWERS = {  # question -> response; its scores in the two modes are worked out below
    "A crate": "<think>3 * 6 = 18</think>\n<answer>18</answer>",
    "Two lorries": "<think>2 * 540</think>\n<answer>1080</answer>",
    "It was": "<think>2 - 5</think>\n<answer>It is now -3</answer>",
    "Half of": "That is 5/2, so 2.50.",
}


@pytest.mark.parametrize(
    ("grader", "expected"),
    [
        ("strict", {"correct": 50.0, "last_number": 100.0, "format": 75.0, "integer": 50.0, "truncated": 0.0}),
        ("released", {"correct": 25.0, "last_number": 100.0, "format": 75.0, "integer": 50.0, "truncated": 0.0}),
    ],
)
def test_the_evaluation_gives_the_numbers_worked_out_by_hand(grader, expected, file, tmp_path, capsys):
    def script(body, nth):
        assert body["temperature"] == 0 and body["max_tokens"] == 1024
        system, user = body["messages"]
        assert system["content"] == template("gsm8k")
        return chat(next(said for start, said in ANSWERS.items() if user["content"].startswith(start)))

    server, out = ScriptedServer(script), tmp_path / "out"
    try:
        line = ["--endpoint", server.url, "--data", str(file), "--out", str(out), "--json"]
        assert execute(program(), line) == 0
    finally:
        server.stop()
    capsys.readouterr()
    assert execute(program(), ["rescore", "--grader", grader, "--data", str(file), "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["gsm8k"]["numbers"]
    assert {number["name"]: number["value"] for number in found} == expected


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("so 18", True),
        ("18 jars, not 19", False),
        ("19 jars, or rather 18.", True),
        ("3,18", True),
        ("0-18", True),
        ("minus -18", False),
        ("$18.00!", True),
        ("18.5", False),
        ("<answer>18</answer>", True),
        ("1,018", False),
        ("eighteen", False),
        ("", False),
    ],
)
def test_the_last_number_of_a_response(response, right, file):
    (benchmark,) = program().benchmarks(type("Options", (), {"data": file, "offline": True}))
    question = benchmark.questions()[0]
    (vector,) = benchmark.grade([(question, {"response": response, "truncated": False})], "strict")
    assert vector["last_number"] == float(right)
