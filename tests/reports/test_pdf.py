"""A report as a PDF, and a document of one's own with what lies beside a figure."""

# SPDX-License-Identifier: GPL-2.0-only

import base64
import shutil
import subprocess
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pytest
from click.testing import CliRunner

from helpers.paths import ROOT
from pcpmodel import figures
from pcpmodel.cli import main
from pcpmodel.figures import style
from pcpmodel.reports import pdf
from pcpmodel.reports.pages import describe, html
from pcpmodel.reports.plan import plan
from pcpmodel.reports.references import references

NAME = "04-refill-and-drain-rules"
#: Not installed everywhere; .ci/run installs it.
LATEX = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
CAPTION = "Pages by k & 100 % of 2_016 µs ± 3 | < 5 ≤ 6 \N{EN DASH} {x} ~ ^ \\ # $."


@pytest.fixture
def report(tmp_path):
    """The report of a notebook, of every kind of cell that there is."""
    (run,) = plan([NAME], project=ROOT, out=tmp_path / "reports")
    run.report.mkdir(parents=True)
    figure, ax = plt.subplots()
    ax.plot([1, 2])
    style.describe(figure, CAPTION)
    figures.save(figure, "ladder", run.report, digest="0" * 64)
    figure.savefig(tmp_path / "shown.png")
    plt.close(figure)
    png = base64.b64encode((tmp_path / "shown.png").read_bytes()).decode()
    v4 = nbformat.v4
    parameters = v4.new_code_cell("batch: int = 63  # pages", metadata={"tags": ["parameters"]})
    drawn = v4.new_code_cell(
        'pm.figures.save(ax, "ladder", report_dir, digest="")',
        outputs=[v4.new_output("display_data", {"image/png": png, "text/plain": "<Figure>"})],
    )
    told = v4.new_code_cell(
        "Markdown(text)",
        outputs=[v4.new_output("display_data", {"text/markdown": "- 12.3 ± 0.4 µs, `a_b`\n- b"})],
    )
    table = v4.new_code_cell(
        "pm.table(x)",
        outputs=[v4.new_output("display_data", {"text/plain": "a  µs\n1  2 → 3", "text/html": ""})],
    )
    cells = [
        v4.new_markdown_cell("# A & B?\n\nWhy **bold** `x_y << 2`, [link](a)\n\n1. one\n2. two"),
        parameters, drawn, told, table,
    ]  # fmt: skip
    notebook = describe(v4.new_notebook(cells=cells), run.report)
    nbformat.write(notebook, run.report / f"{NAME}.ipynb")
    (run.report / f"{NAME}.html").write_text(html(notebook, NAME))
    return run


def command(report, *words):
    out = report.report.parents[1]
    words = [NAME, "--project", str(ROOT), "--reports", str(out), *map(str, words)]
    return CliRunner().invoke(main, ["pdf", *words])


def test_without_a_report_or_a_program_it_says_what_is_missing(report, tmp_path, monkeypatch):
    assert "unknown way 'word'" in command(report, "--with", "word").output
    monkeypatch.setattr(pdf.shutil, "which", lambda program: None)
    done = command(report, "--out", tmp_path / "a.pdf")
    assert done.exit_code == 2
    assert "apt install chromium" in done.output
    assert "texlive-latex-base" in done.output
    shutil.rmtree(report.report)
    done = command(report, "--out", tmp_path / "a.pdf")
    assert done.exit_code == 2
    assert f"pcpmodel rerun {NAME}/all" in done.output
    assert not (tmp_path / "a.pdf").exists()


def test_words_tables_and_figures_of_a_notebook_become_latex(report, tmp_path):
    notebook = nbformat.read(report.report / f"{NAME}.ipynb", as_version=4)
    text = "\n".join(pdf._document(notebook, report.report, tmp_path))
    assert r"\section*{A \& B?}" in text
    assert r"Why \textbf{bold} \texttt{x\_y \textless{}\textless{} 2}, link" in text
    assert r"\begin{enumerate}" in text
    assert "batch: int = 63" in text
    assert r"{ladder.pdf}" in text
    assert r"100 \% of 2\_016 $\mu$s $\pm$ 3 \textbar{} \textless{} 5" in text
    assert r"\item 12.3 $\pm$ 0.4 $\mu$s, \texttt{a\_b}" in text
    assert "\\begin{verbatim}\na  µs" in text
    assert (tmp_path / "ladder.pdf").exists()
    declared = list(pdf._declared("µ→☃"))
    assert r"\DeclareUnicodeCharacter{2192}{\ensuremath{\to}}" in declared
    assert r"\DeclareUnicodeCharacter{2603}{[U+2603]}" in declared


def test_no_output_ends_its_verbatim():
    text = pdf._verbatim(r"\end{ver\end{verbatim}batim}\input{/etc/passwd}")
    assert text.count(r"\end{verbatim}") == 1


@LATEX
def test_pdflatex_sets_a_report(report, tmp_path):
    done = command(report, "--with", "pdflatex", "--out", tmp_path / "a.pdf")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")


@LATEX
def test_a_document_takes_the_float_beside_a_figure_and_the_references(report, tmp_path):
    (tmp_path / "references.bib").write_text(references([report], ROOT))
    (tmp_path / "paper.tex").write_text(
        "\\documentclass{article}\\usepackage{graphicx}\\begin{document}\n"
        f"\\graphicspath{{{{{report.report}/}}}}\n"
        f"\\input{{{report.report}/ladder.tex}}\nFigure~\\ref{{fig:ladder}}.\\nocite{{*}}\n"
        "\\bibliographystyle{plain}\\bibliography{references}\\end{document}\n"
    )
    compile_ = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    for words in (compile_, ["bibtex", "paper"], compile_, compile_):
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout[-2000:]
    assert "undefined" not in done.stdout


def test_a_browser_prints_the_page_where_there_is_one(report, tmp_path, monkeypatch):
    calls = []

    def printed(words, place):
        calls.append(words)
        target = next(w for w in words if w.startswith("--print-to-pdf=")).partition("=")[2]
        Path(target).write_bytes(b"%PDF-1.4")

    monkeypatch.setattr(pdf.shutil, "which", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr(pdf, "_call", printed)
    done = command(report, "--out", tmp_path / "a.pdf", "--json")
    assert done.exit_code == 0, done.output
    assert '"with": "chromium"' in done.output
    assert calls[0][-1].endswith(f"{NAME}.html")
    assert (tmp_path / "a.pdf").read_bytes() == b"%PDF-1.4"
