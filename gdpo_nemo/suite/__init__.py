"""Experiments: declare one, then plan, run, watch, report and check it. See ``repro/`` for examples."""

from gdpo_nemo.report.spec import Claim, Column, Deviation, Exhibit
from gdpo_nemo.suite.command_line import main
from gdpo_nemo.suite.experiment import Arm, Experiment

__all__ = ["Arm", "Claim", "Column", "Deviation", "Exhibit", "Experiment", "main"]
