"""Estimates only ever tell numbers apart that are different."""

from __future__ import annotations

import pytest

from gdpo_nemo.rewards.math.estimate import clearly_different, estimate


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"2\sqrt{3}", 3.4641016), (r"-\frac{1}{2}\pi", -1.5707963), (r"2^{-3}", 0.125), (r"(1+\sqrt{2})^2", 5.8284271),
        ("-2^2", -4.0), ("1/2/3", 0.1666667), ("2(3)", 6.0),
    ],
)  # fmt: skip
def test_values(text: str, value: float) -> None:
    assert estimate(text) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(
    "text",
    ["", "+", "x", r"2\pi r", r"1\frac{1}{2}", r"\sqrt[3]{8}", "2^3^2", "5!", r"\frac{1}{0}", "10^{10^{10}}", "1 2",
     "(1", r"\sqrt{-1}", "(-8)^{1/3}", r"\sqrt{3+2\sqrt{2}}-1-\sqrt{2}", "(" * 30 + "1" + ")" * 30],
)  # fmt: skip
def test_no_value_where_another_reading_or_a_rounding_error_could_matter(text: str) -> None:
    assert estimate(text) is None


def test_only_clear_differences_count() -> None:
    assert clearly_different(r"\sqrt{2}", r"\sqrt{3}")
    assert not clearly_different(r"\sqrt{2}", "1.4142")
    assert not clearly_different(r"\sqrt{2}", "x")
