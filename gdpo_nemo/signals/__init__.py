"""What a run may add to the paper's method, all off by default. docs/signals.md lists them with their equations.

    schedules      a weight that changes with the step
    families       rewards that belong together, summed and then normalised as one
    quantile       a reward in place of its value: its place among the recent ones
    amplification  a bound on what GDPO's batch step scales living groups up by
    clipping       a bound on the advantage
    veto           no positive advantage under a threshold

``gdpo_nemo.method`` puts them in order. Importing this package, ``schedules``, ``families`` or ``veto`` loads no torch.
"""
