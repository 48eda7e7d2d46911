"""Intervals, paired comparisons and planning numbers. NumPy only at import, seeded, no files.

``wilson``: one yes-or-no outcome per question. ``bootstrap_questions``: one model; ``bootstrap_samples``: the same
questions asked again. ``crossed_t``: several seeds that
answer the same questions; what tables and verdicts use. ``hierarchical_bootstrap``: the same by resampling, for ten
seeds and more. ``paired_difference``: two arms, ``holm``: many such comparisons. ``minimum_detectable_effect`` and
``seeds_needed``: what a comparison could have seen. ``Strata``: fixed groups of questions with weights, in all of them.
"""

from gdpo_nemo.stats.bootstrap import RESAMPLES, bootstrap_questions, bootstrap_samples, hierarchical_bootstrap
from gdpo_nemo.stats.comparison import (
    PairedDifference,
    detectable_with_spread,
    holm,
    minimum_detectable_effect,
    paired_difference,
    seeds_needed,
)
from gdpo_nemo.stats.intervals import Interval, crossed_p, crossed_t, iqm, mean_over_seeds, wilson
from gdpo_nemo.stats.strata import Strata, effective_size

__all__ = [
    "RESAMPLES",
    "Interval",
    "PairedDifference",
    "Strata",
    "bootstrap_questions",
    "bootstrap_samples",
    "crossed_p",
    "crossed_t",
    "detectable_with_spread",
    "effective_size",
    "hierarchical_bootstrap",
    "holm",
    "iqm",
    "mean_over_seeds",
    "minimum_detectable_effect",
    "paired_difference",
    "seeds_needed",
    "wilson",
]
