"""Tables, figures and verdicts, from run directories only."""

from gdpo_nemo.report.builder import Report, build
from gdpo_nemo.report.spec import ReportSpec
from gdpo_nemo.report.verdict import Verdict

__all__ = ["Report", "ReportSpec", "Verdict", "build"]
