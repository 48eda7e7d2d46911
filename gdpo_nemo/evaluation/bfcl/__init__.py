"""The Berkeley Function Calling Leaderboard, versions 3 and 4, scored by its own checkers.

    releases      the two releases of bfcl-eval, their categories, and what proves that one is installed whole
    aggregates    the formulas of the leaderboard and of the paper
    environment   builds and finds the environment of a release
    official      runs in that environment, without network: data, checkers and tools of the release
    checkers      talks to it
    decoding      calls in a model's text
    conversation  what is asked, turn by turn
    formats       Correct Format
    benchmark     all of it as a benchmark

docs/bfcl.md tells what equals the leaderboard and what does not.
"""
