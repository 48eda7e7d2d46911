"""Markdown, LaTeX, HTML and CSV say the same, and survive special characters."""

import re
from html.parser import HTMLParser

from planted_runs import cells, make_spec, write_all

from gdpo_nemo.report.builder import build
from gdpo_nemo.report.spec import Claim
from gdpo_nemo.run_dir import RunDir


def test_renderings_agree(root, tmp_path):
    report = build(make_spec(root), tmp_path)
    markdown = (tmp_path / "table.md").read_text("utf-8")
    latex = (tmp_path / "table.tex").read_text("utf-8")
    for (arm, column), cell in cells(tmp_path).items():
        digits = {"format": 1, "correct": 2}[column]
        numbers = [f"{float(cell[key]):.{digits}f}" for key in ("value", "low", "high")]
        printed = f"{numbers[0]} [{numbers[1]}, {numbers[2]}]"
        assert printed in report.text and printed in markdown, arm
        assert printed.replace("-", "$-$") in latex


def test_the_table_comes_first_then_the_claims_then_what_the_runs_can_tell(root, tmp_path):
    report = build(make_spec(root, claims=(Claim("strong", ">", "weak", on="format"),)), tmp_path)
    mean = f"{float(cells(tmp_path)['strong', 'format']['value']):.1f} ["
    written = [(tmp_path / f"table.{suffix}").read_text("utf-8") for suffix in ("md", "html")]
    for text in (report.text, *written):
        numbers, claims, power = (text.index(words) for words in (mean, "Claims", "What these runs can tell"))
        assert numbers < claims < power


def test_embedded_numbers_never_stand_beside_the_papers(root, tmp_path):
    build(make_spec(root), tmp_path / "small")
    build(make_spec(root, scale="paper"), tmp_path / "big")
    for name in ("table.md", "table.tex"):
        text = (tmp_path / "small" / name).read_text("utf-8")
        assert "not comparable with the paper's" in text
        header = next(line for line in text.splitlines() if "Correct format" in line)
        assert "paper" not in header.lower()
        assert "not comparable" not in (tmp_path / "big" / name).read_text("utf-8")
    assert {cell["paper"] + cell["band_low"] + cell["verdict"] for cell in cells(tmp_path / "small").values()} == {""}


def test_latex_is_balanced_and_escaped(root, tmp_path):
    labels = {"strong": r"50% of a_b & c#$~^\{x}", "weak": "<weak>", "erratic": "Erratic", "twin": "Twin"}
    RunDir(root / "twin" / "seed0").clear()
    build(make_spec(root, labels=labels), tmp_path)
    latex = (tmp_path / "table.tex").read_text("utf-8")
    body = "\n".join(line for line in latex.splitlines() if not line.startswith("%"))
    assert re.findall(r"\\begin\{(\w+)\}", body) == re.findall(r"\\end\{(\w+)\}", body)[::-1] == ["table", "tabular"]
    bare = re.sub(r"\\[%&#$_{}\\]", "", body)  # what is left after escapes must be LaTeX of our own
    assert bare.count("{") == bare.count("}") and bare.count("$") % 2 == 0
    assert not re.search(r"[%#~<>]", bare)
    assert not re.search(r"_|\^(?!\{)", re.sub(r"\$[^$]*\$|\\label\{[^}]*\}", "", bare))
    rows = body.split("\\midrule")[1].split("\\bottomrule")[0].strip().splitlines()
    assert len(rows) == 5
    for row in rows:
        assert row.endswith(r"\\") and re.sub(r"\\&", "", row).count("&") == 3
    for command in re.findall(r"\\([a-zA-Z]+)", body):
        assert command in {
            "begin", "end", "centering", "caption", "label", "toprule", "midrule", "bottomrule", "textbf", "par",
            "footnotesize", "times", "textbackslash", "textasciitilde", "textasciicircum", "textless", "textgreater",
        }  # fmt: skip


def test_markdown_cells_survive_pipes(root, tmp_path):
    build(make_spec(root, labels={"strong": "a|b", "weak": "W", "erratic": "E", "twin": "T"}), tmp_path)
    rows = [line for line in (tmp_path / "table.md").read_text("utf-8").splitlines() if line.startswith("|")]
    assert len(rows) == 7 and {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}


def test_labels_with_line_breaks_and_brackets_stay_in_their_rows(root, tmp_path):
    labels = {"strong": "[b] two\n\nlines", "weak": "*W*", "erratic": "~~$x$~~ `E`", "twin": "T\u2028T"}
    build(make_spec(root, labels=labels), tmp_path)
    rows = [line for line in (tmp_path / "table.md").read_text("utf-8").splitlines() if line.startswith("|")]
    assert len(rows) == 7 and {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}
    assert any(r"\~\~\$x\$\~\~ \`E\`" in row for row in rows) and any("[b] two lines" in row for row in rows)
    latex = (tmp_path / "table.tex").read_text("utf-8")
    assert "\n\n" not in latex and "{}[b] two lines & " in latex and "{}*W* & " in latex and "\nT T & " in latex
    assert not re.search(r"\\\\\s*[\[*]", latex)  # would be the argument of the row break


def test_deviations_stand_under_every_table(root, tmp_path):
    report = build(make_spec(root), tmp_path)
    plain = "kl: no KL penalty in 100% of the runs (expected: a_b slightly up)"
    assert plain in report.text
    assert plain.replace("_", "\\_") in (tmp_path / "table.md").read_text("utf-8")
    assert plain.replace("_", "\\_").replace("%", "\\%") in (tmp_path / "table.tex").read_text("utf-8")


class Words(HTMLParser):
    """The rows of the table, and every tag that was left open."""

    def __init__(self):
        super().__init__()
        self.rows, self.open, self.cell = [], [], False

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.cell = tag in ("td", "th") or (self.cell and tag == "strong")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass
        self.cell = self.cell and tag not in ("td", "th")

    def handle_data(self, data):
        if self.cell:
            self.rows[-1][-1] += data


def test_html_holds_the_same_table_and_no_markup_of_labels(root, tmp_path):
    labels = {"strong": "<script>alert(1)</script>", "weak": "a & b", "erratic": "E", "twin": "T"}
    report = build(make_spec(root, labels=labels), tmp_path)
    text = (tmp_path / "table.html").read_text("utf-8")
    assert "<script" not in text and "&lt;script&gt;" in text
    words = Words()
    words.feed(text)
    rows = {row[0]: row[1:] for row in words.rows}
    assert {"Before RL (base)", "<script>alert(1)</script>", "a & b", "E", "T"} < set(rows)
    for row in report.table.rows:
        line = next(line for line in report.text.splitlines() if line.startswith(row.label))
        for printed in rows[row.label]:
            assert printed.replace("*", "") in line.replace("*", "")


def test_models_stand_in_groups_in_every_rendering(tmp_path):
    from gdpo_nemo.report.cells import Part
    from gdpo_nemo.report.loading import read_evaluations
    from gdpo_nemo.report.render import to_csv, to_html, to_latex, to_markdown, to_text
    from gdpo_nemo.report.table import build_table

    parts = []
    for model in ("one", "two_b"):
        write_all(tmp_path / model, arms=("strong", "weak"))
        spec = make_spec(tmp_path / model, arms=("strong", "weak"), model=model)
        parts.append(Part(spec, read_evaluations(spec)))
    table = build_table(parts, [])
    assert [row.group for row in table.rows] == ["one"] * 3 + ["two_b"] * 3
    lines = to_text(table).splitlines()
    assert lines.index("one") < lines.index("two_b")
    assert "### one" in to_markdown(table) and "### two\\_b" in to_markdown(table)
    assert "\\multicolumn{4}{l}{\\textit{two\\_b}}" in to_latex(table)
    assert '<th colspan="4" scope="rowgroup">two_b</th>' in to_html(table)
    assert {line.split(",")[0] for line in to_csv(table).splitlines()[1:]} == {"one", "two_b"}
