import json

import pytest

from gdpo_nemo.errors import InputError
from gdpo_nemo.evaluation.exact_answers import ExactAnswers

ROWS = [{"question": "1 + 1", "answer": 2}, {"question": "2 + 2", "answer": "4", "id": "two", "group": "hard"}]


@pytest.mark.parametrize(
    ("name", "text"),
    [("sums.json", json.dumps(ROWS)), ("sums.jsonl", "\n\n".join(map(json.dumps, ROWS)))],
)
def test_questions_are_read_from_a_list_and_from_lines(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    benchmark = ExactAnswers(tmp_path / name, system="Add.")
    assert benchmark.name == "sums"
    opening = {"role": "system", "content": "Add."}
    assert benchmark.questions() == [
        {"row_id": "1", "messages": [opening, {"role": "user", "content": "1 + 1"}], "gold": "2"},
        {"row_id": "two", "messages": [opening, {"role": "user", "content": "2 + 2"}], "gold": "4", "group": "hard"},
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"question": "1 + 1"}', "sums.jsonl line 1 has no 'answer'"),
        ("\n[]", "sums.jsonl line 2 is a list; expected an object"),
        ("", "sums.jsonl has no rows"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(tmp_path, text, words):
    (tmp_path / "sums.jsonl").write_text(text)
    with pytest.raises(InputError, match=words):
        ExactAnswers(tmp_path / "sums.jsonl")
