"""Figures of a report: for each a PDF, a PNG and a CSV of what is drawn, the same bytes for the same runs.

``curves`` draws rewards and other metrics over training (figures 1b, 4, 5, 7 of arXiv 2601.05242), ``tradeoff`` one
column against another over the weights of a reward (figure 6), ``groups`` the distinct advantage groups (figure 3);
``style`` holds what they share.
"""
