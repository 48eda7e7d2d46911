"""Which text of a response is the program, and which answers are the expected one."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from gdpo_nemo.errors import UnknownNameError
from gdpo_nemo.rewards.code import extract_code
from gdpo_nemo.rewards.code.comparing import prime_same_output, same_output, same_value


@pytest.mark.parametrize(
    ("response", "program"),
    [
        ("```python\na = 1\n```", "a = 1\n"),
        ("```\nb = 2\n```\n```python3.11\na = 1\n```\n```pyx\nc = 3\n```", "a = 1\n"),
        ("text\n```py\na\n```\nmore\n```Python3\nb\n```\nend", "b\n"),
        ("```python\na\n```\nOutput:\n```\n3\n```\n```text\n4\n```", "a\n"),
        ("```\na\n```\n```\nb\n```", "b\n"),
        ("```cpp\nint a;\n```\n```bash\nls\n```", None),
        ("print(1)", None),
        ("", None),
        ("use `x` or ```y``` here", None),
        ("<think>\n```python\na\n```\n</think>\n```python\nb\n```", "b\n"),
        ("<think>\n```python\na\n```\n</think> done", None),
        ("<think>\n```python\na\n```", None),
        ("reasoning ```python\na\n``` </think>```python\nb\n```", "b\n"),
        ("x</think>```python\na\n```</think>```python\nb\n```", "b\n"),
        ("```python\nif a:\n    b", "if a:\n    b"),
        ("~~~python\na = '```'\n~~~", "a = '```'\n"),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''\n"),
        ("1. So:\n   ```python\n   if a:\n       b\n   ```", "if a:\n    b\n"),
        ("1. ```python\n   if a:\n       b\n   ```", "if a:\n    b\n"),
        ("- ```\n  if a:\n      b\n  ```\nend", "if a:\n    b\n"),
        ("* ```bash\n  ls\n  ```\n* ```python\n  a\n  ```\n\nend", "a\n"),
        ("-\t```python\n\tif a:\n\t    b\n\t```", "if a:\n    b\n"),
        ("\t```python\n    if a:\n    \tb\n    ```", "if a:\n\tb\n"),
        ("    ```python\n\tif a:\n\t\tb\n\t```", "if a:\n\tb\n"),
        ("```python\n'''\n    ```\n    f(1)\n    ```\n'''\n```\nend", "'''\n    ```\n    f(1)\n    ```\n'''\n"),
        ("```python\n\t```\na\n```\nend", "\t```\na\n"),
        ("```python\na\n   ```\nend", "a\n"),
        ("<answer>```python\na\n```</answer>", "a\n"),
        ("<answer>\n```python\na\n``` </answer>", "a\n"),
        ("```python\na\n```<|im_end|>", "a\n"),
        ("```python\na\n```<b>c\n```", "a\n```<b>c\n"),
        ("```python\na = '''\n```python\n'''\n```", "a = '''\n```python\n'''\n"),
        ("     ```python\n     a\n     ```\nend", "a\n"),
        ("Code: ```python\na\n```", "a\n"),
        ("```python\r\na\r\nb\r\n```\r\n", "a\nb\n"),
        ("```python title=x\na\n```", "a\n"),
        ("```python\n```", ""),
        ("```python\nprint(1)```", "print(1)\n"),
    ],
)
def test_the_program_of_a_response(response: str, program: str | None) -> None:
    assert extract_code(response) == program


def test_how_thinking_is_read_can_be_chosen() -> None:
    response = "```python\na\n```"
    assert extract_code(response, thinking="required") is None
    assert extract_code(f"x</think>{response}", thinking="required") == "a\n"
    assert extract_code(f"{response}\n</think>", thinking="ignored") == "a\n"
    with pytest.raises(UnknownNameError, match="ignored"):
        extract_code(response, thinking="never")


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("3\n", "3", True),
        ("3", "3 \r\n\n", True),
        ("a  b", "a b", True),
        ("1\n\n2", "1\n2", False),
        ("1 2", "1\n2", False),
        ("YES", "yes", False),
        ("7", "7.0", False),
        ("7", "07", False),
        ("1000000", "1000001", False),
        ("0.5", "0.5000001", True),
        ("0.5", ".5", True),
        ("0.5", "0.501", False),
        ("1e6", "1000000.5", True),
        ("1e6", "1000002", False),
        ("10000000 0.5", "10000001 0.5", False),
        ("0.5", "nan", False),
        ("0.5", "0x1p-1", False),
        ("1.0", "1_0e-1", False),
        ("1e400", "inf", False),
        ("nan", "nan", True),
        ("é", "é", True),
        ("1e400", "5", False),
        ("1 2", "1\u30002", True),
        ("1e-7", "0.0000001", True),
        ("-0.0", "0", True),
        ("", "\n \n", True),
        pytest.param("0.5", "1" * 1_000_000 + "x", False, id="an hour, if the pattern could be matched in two ways"),
    ],
)
def test_printed_answers(expected: str, printed: str, same: bool) -> None:
    assert same_output(expected, printed.encode()) is same


def test_the_loose_scorer_takes_no_number_for_infinity() -> None:
    assert prime_same_output("inf 1", b"inf 1.000001") and not prime_same_output("inf", b"5")


def test_bytes_that_are_no_text_are_wrong() -> None:
    assert not same_output("3", b"3\xff")


@pytest.mark.parametrize(
    ("expected", "returned", "same"),
    [
        ("3", "3", True),
        ("3", "3.0", True),
        ("3", "3.0000001", False),
        ("-1000000006", "-1000000007", False),
        ("0.5", "0.5000001", True),
        ("1.0", "1", True),
        ("true", "1", False),
        ("1", "true", False),
        ("null", "null", True),
        ("[1, 2]", "[1, 2]", True),
        ("[1, 2]", "[1, 2, 3]", False),
        ("[1, 2]", "1", False),
        ('"3"', "3", False),
        ('{"a": [1.0]}', '{"a": [1.0000001]}', True),
        ('{"a": 1}', '{"a": 1, "b": 2}', False),
        ("1" * 5000, "1" * 5000, True),
        ("1" * 5000, "1" * 4999 + "2", False),
        ("0.5", "NaN", False),
        ("NaN", "NaN", True),
        ("NaN", "0", False),
        ("Infinity", "Infinity", True),
        ("Infinity", "5", False),
        ("1e400", "5.5", False),
        ("0.5", "1" * 400, False),
        ("[1", "[1", False),
        ("1", "[" * 100_000, False),
    ],
)
def test_returned_answers(expected: str, returned: str, same: bool) -> None:
    assert same_value(expected, returned) is same


@pytest.mark.parametrize(
    ("compare", "expected", "flood"),
    [
        (same_output, "3", b"no\n" * 700_000),
        (same_output, "3 4", b"no " * 700_000),
        (same_value, "[3]", "[" + "[]," * 700_000 + "0]"),
        (same_value, "0.5", "[" + "0.25," * 400_000 + "0]"),
    ],
)
def test_a_flood_is_told_from_the_answer_before_it_is_cut_to_pieces(compare, expected, flood) -> None:
    tracemalloc.start()
    try:
        assert compare(expected, flood) is False
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * len(flood)


@pytest.mark.parametrize(
    ("expected", "value"),
    [("[1e299]", [10**299]), ('["\U0001f600"]', ["\U0001f600"]), ("[0.1,0.2]", [0.1 + 1e-17, 0.3 - 0.1])],
)
def test_a_value_may_be_much_longer_than_the_expected_one(expected, value) -> None:
    assert same_value(expected, json.dumps(value))
