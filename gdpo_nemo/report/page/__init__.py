"""A report as one HTML file that needs no network and no other file.

``build`` collects a ``PageDocument`` from runs, ``render_page`` turns one into a string.
"""

from gdpo_nemo.report.page.document import PageDocument
from gdpo_nemo.report.page.render import render_page

__all__ = ["PageDocument", "render_page"]
