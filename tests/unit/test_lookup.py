import json

import pytest

from gdpo_nemo.errors import RunDirError
from gdpo_nemo.evaluation.lookup import find_rows
from gdpo_nemo.files import to_jsonl


def test_rows_are_found_by_id_and_index_with_their_lines(tmp_path):
    ids = ["a", "b", 'odd", "index": 1', "é"]
    rows = [{"row_id": name, "index": i, "response": f"{name}{i}"} for name in ids for i in range(2)]
    path = tmp_path / "generations.jsonl"
    path.write_text(to_jsonl(rows) + json.dumps({"index": 5, "row_id": "late"}) + "\n" + '{"row_id": "b", "index": 7')
    wanted = {("b", 1), (ids[2], 0), ("é", 0), ("late", 5), ("b", 7), ("nowhere", 0)}
    found = find_rows(path, wanted)
    assert {key: line for key, (line, _) in found.items()} == {("b", 1): 4, (ids[2], 0): 5, ("é", 0): 7, ("late", 5): 9}
    assert found[("b", 1)][1]["response"] == "b1"
    assert find_rows(tmp_path / "absent.jsonl", wanted) == {}


def test_a_question_has_index_0(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text(to_jsonl([{"row_id": "q", "messages": [], "gold": "4"}]))
    assert find_rows(path, {("q", 0)})[("q", 0)][1]["gold"] == "4"


@pytest.mark.parametrize("line", ['{"row_id": "b", "ind', "[1]", '{"index": 0}', '{"row_id": "b", "index": null}'])
def test_a_corrupt_line_is_named(tmp_path, line):
    path = tmp_path / "scores.jsonl"
    path.write_text(to_jsonl([{"row_id": "a", "index": 0}]) + line + "\n" + to_jsonl([{"row_id": "b", "index": 0}]))
    with pytest.raises(RunDirError, match=r"scores\.jsonl line 2 is corrupt"):
        find_rows(path, {("b", 0)})
