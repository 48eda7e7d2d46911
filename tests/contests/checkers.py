"""Whether an answer is right, for the problems of the file that accept several.

A checker takes the numbers of the input, the tokens that the file expects and those that were printed; what the file
expects tells only whether there is an answer, or how long the best is. None: the input is not as the problem says.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import deque
from itertools import pairwise

END, QUESTIONS = 10**18, 2 * 10**5


def weakened_common_divisor(numbers, expected, printed):
    pairs = [(a, b) for a, b in zip(numbers[1::2], numbers[2::2], strict=True)]
    if expected == ["-1"] or printed == ["-1"]:
        return printed == expected
    [divisor] = map(int, printed)
    return divisor > 1 and all(a % divisor == 0 or b % divisor == 0 for a, b in pairs)


def presents(numbers, expected, printed):
    boxes, at = [], 2
    for _ in range(numbers[0]):
        boxes.append(set(numbers[at + 1 : at + 1 + numbers[at]]))
        at += 1 + numbers[at]
    if at != len(numbers):
        return None
    moves = list(map(int, printed))
    if printed[0] != expected[0] or len(moves) != 1 + 3 * moves[0]:
        return False
    for source, to, kind in zip(moves[1::3], moves[2::3], moves[3::3], strict=True):
        if kind not in boxes[source - 1] or kind in boxes[to - 1]:
            return False
        boxes[source - 1].remove(kind)
        boxes[to - 1].add(kind)
    return max(map(len, boxes)) - min(map(len, boxes)) <= 1


def increasing_subsequence(numbers, expected, printed):
    rest, taken = deque(numbers[1:]), []
    if len(rest) != numbers[0]:
        return None
    if printed[0] != expected[0] or len(printed[1]) != int(printed[0]):
        return False
    for side in printed[1]:
        taken.append(rest.popleft() if side == "L" else rest.pop())
    return all(a < b for a, b in pairwise(taken))


def tiles(numbers, expected, printed):
    n, k = numbers[:2]
    roads = list(zip(numbers[2::2], numbers[3::2], strict=True))
    neighbours = {v: [] for v in range(1, n + 1)}
    for v, u in roads:
        neighbours.setdefault(v, []).append(u)
        neighbours.setdefault(u, []).append(v)
    reached = {1: None}
    for v in (order := [1]):
        order += [u for u in neighbours[v] if u not in reached]
        reached |= dict.fromkeys(neighbours[v])
    if not 2 <= k <= n or len(neighbours) != n or len(roads) != n - 1 or len(reached) != n:
        return None
    if "no" in (printed[0].lower(), expected[0].lower()):
        return printed[0].lower() == expected[0].lower()
    color = dict(enumerate(map(int, printed[1:]), 1))

    def paths(path):
        if len(path) == k:
            yield path
            return
        for u in neighbours[path[-1]]:
            if u not in path[-2:-1]:
                yield from paths([*path, u])

    colors = set(range(1, k + 1))
    return (
        len(color) == n
        and colors.issuperset(color.values())
        and all({color[v] for v in path} == colors for v in neighbours for path in paths([v]))
    )


def platforms(numbers, expected, printed):
    (n, m, d), lengths = numbers[:3], numbers[3:]
    if len(lengths) != m or sum(lengths) > n:
        return None
    if "NO" in (printed[0], expected[0]):
        return printed == expected
    cells = list(map(int, printed[1:]))
    steps = [0, *(place for place, platform in enumerate(cells, 1) if platform), n + 1]
    order = [platform for platform in cells if platform]
    return (
        len(cells) == n
        and order == [i for i, length in enumerate(lengths, 1) for _ in range(length)]
        and all(b - a <= d for a, b in pairwise(steps))
        and all(b - a == 1 for (a, b), (p, q) in zip(pairwise(steps[1:-1]), pairwise(order), strict=True) if p == q)
    )


def any_layout(numbers, expected, printed):
    return printed == expected


CHECKERS = {
    4: weakened_common_divisor, 7: presents, 10: increasing_subsequence, 13: tiles, 15: platforms, 19: any_layout,
}  # fmt: skip
"""id of the problem -> its checker."""


def accepts(id, stdin, expected, printed):
    """As a checker says; whatever cannot be read as an answer is wrong."""
    try:
        numbers = list(map(int, stdin.split()))
        return CHECKERS[id](numbers, expected.split(), printed.split())
    except (ValueError, IndexError):
        return False


def segments_of_good_functions(source, games=20):
    """Plays 1179_E with a program that is trusted.

    Args:
        source: of the program; it runs in this process.
        games: how many.

    Returns:
        games won, games.
    """
    program = compile(source, "1179_E", "exec")
    return sum(_play(program, random.Random(seed)) for seed in range(games)), games


def _play(program, draw):
    n = draw.randint(1, 7)
    part = draw.randint(1, 3)
    reach = draw.choice((21, 40, END))
    # The places after which each function is one more; in some games all functions are the same.
    steps = [sorted(draw.sample(range(reach), n * part)) for _ in range(n)]
    if draw.random() < 0.3:
        steps = [steps[0]] * n
    value = lambda i, x: bisect_left(steps[i], x)  # noqa: E731
    said, answers = [], []

    def tell(*words, flush=False):
        said.append(words)
        if words[0] == "?":
            answers.append(value(words[1] - 1, words[2]))

    lines = iter([f"{n} {n * part}"])
    exec(program, {"input": lambda: next(lines, None) or str(answers[-1]), "print": tell})
    segments = said[said.index(("!",)) + 1 :]
    ordered = sorted(segments)
    return (
        len(answers) <= QUESTIONS
        and len(segments) == n
        and all(value(i, right) - value(i, left) >= part for i, (left, right) in enumerate(segments))
        and all(right <= left for (_, right), (left, _) in pairwise(ordered))
    )
