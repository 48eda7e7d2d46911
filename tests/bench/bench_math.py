"""How fast math answers are graded: the exact path against math-verify, on the same responses in one run.

    python tests/bench/bench_math.py [NUM_RESPONSES]

Prints ratios, which say the same on a busy machine; the rates behind them hold for this machine only. The last line is
the time for 16 samples of 1,560 questions with one answer in a hundred that needs a worker.
"""

from __future__ import annotations

import random
import sys
import time

from gdpo_nemo.rewards.math import close_pools, grade_many, library

FILLER = "We have $x = 3$ and the sum of the series is bounded by the integral, so the claim holds. " * 150
NUM_QUESTIONS, NUM_SAMPLES = 1_560, 16


def responses(rng: random.Random, golds: list[str]) -> list[str]:
    """13,000 characters each; half of the answers are the gold, in one of several spellings."""

    def answer(gold: str) -> str:
        other = rng.choice([str(rng.randint(0, 10**6)), rf"\frac{{{rng.randint(1, 99)}}}{{{rng.randint(2, 99)}}}"])
        return rng.choice([gold, f"{gold}.0", rf"x = {gold}", gold, other, other, other, other])

    return [rf"<think>{FILLER}</think> The answer is $\boxed{{{answer(gold)}}}$." for gold in golds]


def per_second(num: int, seconds: float) -> str:
    return f"{num / seconds:,.0f} responses/s"


def main(num: int) -> None:
    """Print the table."""
    rng = random.Random(0)
    golds = [str(rng.randint(0, 999)) for _ in range(num)]
    texts = responses(rng, golds)
    started = time.process_time()
    grades = grade_many(texts, golds)
    exact_s = (time.process_time() - started) / num
    assert all(grade.path == "exact" for grade in grades)

    library.start()
    few = min(num, 100)
    short = [text.rpartition("</think>")[2] for text in texts[:few]]
    started = time.process_time()
    agreed = sum(
        library.verify_plain(gold, text) == grade.correct
        for gold, text, grade in zip(golds, short, grades, strict=False)
    )
    library_s = (time.process_time() - started) / few
    print(f"exact path    {per_second(1, exact_s)} a core, on {len(texts[0]):,} characters each")
    print(
        f"math-verify   {per_second(1, library_s)} a core, on {len(short[0])} characters; {agreed}/{few} same verdicts"
    )
    print(f"ratio         {library_s / exact_s:,.0f}")

    roots = [rf"{rng.randint(2, 99)}\sqrt{{{rng.choice([2, 3, 5])}}}" for _ in range(NUM_QUESTIONS)]
    questions = [str(rng.randint(0, 999)) if rng.random() < 0.6 else root for root in roots]
    all_golds = [gold for gold in questions for _ in range(NUM_SAMPLES)]
    recorded = responses(rng, all_golds)
    for index in rng.sample(range(len(recorded)), len(recorded) // 100):
        recorded[index] = rf"<think>{FILLER}</think> $\boxed{{\ln {rng.randint(2, 9000)}}}$"
    started, used = time.perf_counter(), time.process_time()
    grades = grade_many(recorded, all_golds)
    wall_s, own_s = time.perf_counter() - started, time.process_time() - used
    num_library = sum(grade.path == "library" for grade in grades)
    print(f"{NUM_SAMPLES} x {NUM_QUESTIONS:,}    {wall_s:.0f} s ({own_s:.1f} s in this process); "
          f"{num_library:,} verdicts from workers")  # fmt: skip
    close_pools()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000)
