"""Where our number should fall if it reproduces the paper's, and what to call it: derived, not typed.

The band of a cell is the paper's number P plus or minus

    rounding + sqrt( max(t(S-1)^2 v_run, z^2 v_sample) (1/S + 1/R) )

    rounding   half a unit of the last decimal that the paper prints
    v_run      variance of our seeds' values (ddof 1): seeds and sampling of answers together
    v_sample   variance that the sampling of answers alone gives one run on these questions,
               sum_g w_g^2 / Q_g^2 sum_q s_q^2 / N; with one sample per question s_q^2 / N is not known, and the
               spread over the questions of the group stands for it, which is more. Where all answers have one
               value it is that of a share P, P (1 - P) / n with n as in Wilson's interval
    S, R       our runs and the paper's, both means of as many; t, z: two-sided quantiles at the level

It is a prediction interval for the difference of two means of runs, and never narrower than sampling allows, whatever
luck the seeds had. The questions are the same on both sides, so their difficulty is no part of it. The base model is
one model on both sides: S = R = 1, and only v_sample. A trained arm with one seed has no band.

Verdicts, by the first that applies. ``not_run``: no value. ``underpowered``: no band, or a value inside a band that is
no narrower than the smallest effect of the paper's that the cell takes part in, so that it could not have told the arms
apart. ``reproduced``: inside. ``direction``: outside, and every comparison that the cell takes part in is supported
with the sign of the paper's effect. ``not_reproduced``: outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal

import numpy as np

from gdpo_nemo.report.references import ReferenceCell
from gdpo_nemo.report.samples import Evaluation
from gdpo_nemo.report.spec import Column
from gdpo_nemo.report.verdict import Verdict
from gdpo_nemo.stats import Interval, effective_size
from gdpo_nemo.stats.intervals import t_quantile
from gdpo_nemo.stats.strata import seed_means, split

METHOD = "band"
CellVerdict = Literal["reproduced", "direction", "not_reproduced", "underpowered", "not_run"]
CELL_WORDS: dict[CellVerdict, str] = {
    "reproduced": "reproduced",
    "direction": "direction",
    "not_reproduced": "not reproduced",
    "underpowered": "underpowered",
    "not_run": "not run",
}


def band(
    paper: ReferenceCell, num_paper_runs: int, runs: Sequence[Evaluation], column: Column, level: float, *, base: bool
) -> Interval | None:
    """The band in the printed unit; see the module's docstring.

    Args:
        paper: the paper's number.
        num_paper_runs: R.
        runs: our S graded evaluations.
        column: how a value is made of samples.
        level: of the quantiles.
        base: whether this is the model before training.
    """
    if not runs or (len(runs) < 2 and not base):
        return None
    strata = runs[0].strata(column)
    means_S = seed_means(np.stack([run.questions_Q(column) for run in runs]), strata) * column.factor
    v_sample = float(np.mean([sampling_variance(run, column) for run in runs])) * column.factor**2
    if v_sample == 0 and column.is_share:
        share = min(max(paper.value / column.factor, 0.0), 1.0)
        v_sample = share * (1 - share) / effective_size(runs[0].samples_Q_N(column).T, strata) * column.factor**2
    spread = NormalDist().inv_cdf(0.5 + level / 2) ** 2 * v_sample
    parts = 2.0
    if not base:
        spread = max(t_quantile(level, len(runs) - 1) ** 2 * float(means_S.var(ddof=1)), spread)
        parts = 1 / len(runs) + 1 / num_paper_runs
    assert paper.decimals is not None
    half = 0.5 * 10.0**-paper.decimals + (spread * parts) ** 0.5
    return Interval(paper.value - half, paper.value + half, level, METHOD)


def sampling_variance(run: Evaluation, column: Column) -> float:
    """v_sample of one run, in the unit of its values squared."""
    samples_Q_N = run.samples_Q_N(column)
    total = 0.0
    for weight, own_N_Q in split(samples_Q_N.T, run.strata(column), every_row=False):
        graded_Q = (~np.isnan(own_N_Q)).sum(axis=0)
        own_N_Q, graded_Q = own_N_Q[:, graded_Q > 0], graded_Q[graded_Q > 0]
        num_questions = len(graded_Q)
        if (graded_Q > 1).any():
            repeated = graded_Q > 1
            per_question = np.nanvar(own_N_Q[:, repeated], axis=0, ddof=1) / graded_Q[repeated]
            total += weight**2 * float(per_question.mean()) / num_questions
        elif num_questions > 1:
            total += weight**2 * float(np.nanmean(own_N_Q, axis=0).var(ddof=1)) / num_questions
    return total


def cell_verdict(
    value: float | None, cell_band: Interval | None, effects: Sequence[float], verdicts: Sequence[Verdict]
) -> CellVerdict:
    """What to call a cell that has a number of the paper's.

    Args:
        value: ours, None where not run.
        cell_band: see ``band``.
        effects: the paper's differences that the cell takes part in.
        verdicts: of the comparisons that it takes part in, adjusted.
    """
    if value is None:
        return "not_run"
    if cell_band is None:
        return "underpowered"
    if cell_band.low <= value <= cell_band.high:
        smallest = min(map(abs, effects), default=None)
        too_wide = smallest is not None and (cell_band.high - cell_band.low) / 2 >= smallest
        return "underpowered" if too_wide else "reproduced"
    return "direction" if verdicts and all(_as_in_the_paper(verdict) for verdict in verdicts) else "not_reproduced"


def _as_in_the_paper(verdict: Verdict) -> bool:
    """Whether our difference is established and has the sign of the paper's."""
    if verdict.effect is None or verdict.difference is None or verdict.status not in ("supported", "contradicted"):
        return False
    return verdict.effect * verdict.difference > 0
