"""BFCL: function calling of any model, by the leaderboard's own checkers; version 3 is the paper's. See docs/bfcl.md.

gdpo eval bfcl setup --version v3                  # builds the environment of the checkers, once
gdpo eval bfcl --endpoint http://host:8000/v1      # all categories of version 3, prompt and handler of ToolRL
gdpo eval bfcl --checkpoint RUN@STEP --categories live non_live --limit 100
"""

from gdpo_nemo.evaluation.bfcl.command_line import PROGRAM
from gdpo_nemo.evaluation.command_line import main

if __name__ == "__main__":
    main(PROGRAM)
