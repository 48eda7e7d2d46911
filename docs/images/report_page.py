"""The picture of the report page: a wide screen, and on a phone the curves and the samples of a cell. Needs Chromium.

python docs/images/report_page.py runs/tool_calling/embedded/tiny/report/report.html docs/images/report_page.png
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "unit"))

from devtools import Browser
from PIL import Image

DESK, PHONE, HEIGHT, GAP = 1120, 390, 1690, 24
SCALE = 0.69
CELL = "#cell=embedded:tiny/gdpo/correct"
TOP = "document.getElementById('{}').scrollIntoView({{block: 'start', behavior: 'instant'}})"
SECOND_SAMPLE = "document.querySelectorAll('#trace summary')[1]"


def main(report: Path, picture: Path) -> None:
    """Take three pictures and set them beside each other."""
    with tempfile.TemporaryDirectory() as name:
        folder, address = Path(name), report.resolve().as_uri()
        browser = Browser(folder / "profile")
        try:
            with browser.page(address, width=DESK, height=HEIGHT) as page:
                page.picture(folder / "desk.png", whole=False)
            phone_height = (HEIGHT - GAP) // 2
            with browser.page(address, width=PHONE, height=phone_height, dark=True) as page:
                page.run(TOP.format("curves"))
                page.settle()
                page.picture(folder / "curves.png", whole=False)
            with browser.page(address + CELL, width=PHONE, height=phone_height, dark=True) as page:
                page.run(f"{SECOND_SAMPLE}.click()")
                page.run(f"{SECOND_SAMPLE}.scrollIntoView({{block: 'start', behavior: 'instant'}})")
                page.settle()
                page.picture(folder / "samples.png", whole=False)
            sheet = folder / "sheet.html"
            sheet.write_text(
                f"<body style='margin:0;zoom:{SCALE};display:flex;gap:{GAP}px;background:#c5cad0'><img src=desk.png>"
                f"<div style='display:grid;gap:{GAP}px'><img src=curves.png><img src=samples.png></div>",
                "utf-8",
            )
            with browser.page(
                sheet.as_uri(), width=round(SCALE * (DESK + GAP + PHONE)), height=round(SCALE * HEIGHT)
            ) as page:
                page.picture(picture, whole=False)
        finally:
            browser.close()
    Image.open(picture).quantize(256, Image.Quantize.MAXCOVERAGE).save(picture, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
