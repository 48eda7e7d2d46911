"""Tables, figures and verdicts, from run directories only.

``gdpo_nemo.report.builder.build`` makes a report; ``gdpo_nemo.report.spec`` says what to show.
"""
