"""GDPO: train a language model on several rewards at once (arXiv 2601.05242).

Importing this package is cheap and never imports torch; see the submodules.
"""

__version__ = "0.1.0"
