"""Intervals, paired comparisons and planning numbers. NumPy only at import, seeded, no files.

``wilson``: one yes-or-no outcome per question. ``bootstrap_questions``: one model. ``crossed_t``: several seeds that
answer the same questions; what tables and verdicts use. ``hierarchical_bootstrap``: the same by resampling, for ten
seeds and more. ``paired_difference``: two arms. ``minimum_detectable_effect``: what a comparison could have seen.
"""

from gdpo_nemo.stats.bootstrap import RESAMPLES, bootstrap_questions, hierarchical_bootstrap
from gdpo_nemo.stats.comparison import PairedDifference, minimum_detectable_effect, paired_difference
from gdpo_nemo.stats.intervals import Interval, crossed_t, iqm, mean_over_seeds, wilson

__all__ = [
    "RESAMPLES",
    "Interval",
    "PairedDifference",
    "bootstrap_questions",
    "crossed_t",
    "hierarchical_bootstrap",
    "iqm",
    "mean_over_seeds",
    "minimum_detectable_effect",
    "paired_difference",
    "wilson",
]
