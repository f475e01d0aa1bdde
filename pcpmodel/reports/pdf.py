"""One report as a PDF: its page printed by a browser, or its words and figures through LaTeX."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pcpmodel.errors import CheckError, InputError, unknown_name
from pcpmodel.figures.print import MATHS, latex_text
from pcpmodel.files import read_bytes, scratch, write_whole
from pcpmodel.reports.plan import Run
from pcpmodel.reports.references import references

__all__ = ["WAYS", "print_report"]

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_SECONDS = 300  # of one program
_KNOWN = set(
    "\N{EN DASH}\N{EM DASH}\u2018\u2019\u201c\u201d"
)  # letters that the plain fonts of LaTeX have
_PREAMBLE = r"""\documentclass[10pt,a4paper]{article}
\usepackage[margin=2.2cm]{geometry}
\usepackage{graphicx}
\usepackage{hyperref}
\setlength{\parindent}{0pt}\setlength{\parskip}{5pt}
\sloppy
"""


def _browser(run: Run, made: Path, place: Path) -> None:
    """Print the report's page."""
    program = next(filter(None, map(shutil.which, _BROWSERS)))
    page = run.report / f"{run.notebook.name}.html"
    words = [
        program,
        "--headless",
        "--disable-gpu",
        f"--user-data-dir={place / 'profile'}",
        "--no-pdf-header-footer",
        f"--print-to-pdf={made}",
        page.resolve().as_uri(),
    ]
    # A browser does not put a page into a sandbox for root; this page is our own.
    words[1:1] = ["--no-sandbox"] if os.geteuid() == 0 else []
    _call(words, place)


def _latex(run: Run, made: Path, place: Path) -> None:
    """Words, tables as text and figures of the executed notebook, sources at the end."""
    import nbformat

    notebook = nbformat.read(run.report / run.notebook.path.name, as_version=4)
    body = "\n\n".join(_document(notebook, run.report, place))
    sources = references([run])
    (place / "references.bib").write_text(sources, encoding="utf-8")
    cited = "\n\\nocite{*}\\bibliographystyle{plain}\\bibliography{references}\n"
    with_sources = shutil.which("bibtex") is not None
    letters = "\n".join(_declared(body + sources))
    text = (
        f"{_PREAMBLE}{letters}\n\\begin{{document}}\n{body}\n"
        f"{cited if with_sources else ''}\\end{{document}}\n"
    )
    (place / "report.tex").write_text(text, encoding="utf-8")
    compile_ = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "report.tex"]
    _call(compile_, place)
    if with_sources:
        _call(["bibtex", "-terse", "report"], place)
        _call(compile_, place)
        _call(compile_, place)
    shutil.move(place / "report.pdf", made)


#: How a report becomes a PDF -> the programs, of which it takes one, and what does it.
WAYS: Mapping[str, tuple[tuple[str, ...], Callable[[Run, Path, Path], None]]] = {
    "chromium": (_BROWSERS, _browser),
    "pdflatex": (("pdflatex",), _latex),
}


def print_report(run: Run, target: Path, way: str | None = None) -> str:
    """Write a report as a PDF.

    Parameters
    ----------
    run : Run
        A report that is there, from `pcpmodel.reports.plan.plan`.
    target : path
        The file, complete or absent.
    way : str, optional
        Of `WAYS`; by default the first whose program is installed.

    Returns
    -------
    str
        The way that was gone.

    Raises
    ------
    InputError
        If there is no report, the way is unknown, or no program is installed.
    CheckError
        If the program failed.
    """
    if way is not None and way not in WAYS:
        raise unknown_name("way", way, WAYS)
    if not (run.report / run.notebook.path.name).is_file():
        raise InputError(f"no report of {run.name}: pcpmodel rerun {run.name} makes it")
    there = [name for name, (programs, _) in WAYS.items() if any(map(shutil.which, programs))]
    found = way or next(iter(there), "")
    if found not in there:
        raise InputError(
            f"a PDF needs {way or 'chromium or pdflatex'} in PATH; Debian: apt install chromium, "
            "or texlive-latex-base texlive-latex-recommended"
        )
    with scratch() as place:
        made = place / "printed.pdf"
        WAYS[found][1](run, made, place)
        if not made.is_file():
            raise CheckError(f"{found} wrote no PDF of {run.name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, read_bytes(made))
    return found


def _call(words: list[str], place: Path) -> None:
    try:
        done = subprocess.run(
            words, cwd=place, capture_output=True, timeout=_SECONDS, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise CheckError(f"{words[0]} took more than {_SECONDS} s") from None
    if done.returncode:
        said = (done.stdout + done.stderr).decode("utf-8", "replace")
        wrong = re.findall(r"^!.*|^.*[Ee]rror.*", said, re.M) or said.splitlines()[-1:]
        raise CheckError(f"{words[0]}: {wrong[0] if wrong else f'exit code {done.returncode}'}")


def _declared(text: str) -> Iterator[str]:
    """Letters that LaTeX is told of."""
    for letter in sorted({c for c in text if ord(c) > 0x7F} - _KNOWN):
        said = rf"\ensuremath{{{MATHS[letter]}}}" if letter in MATHS else f"[U+{ord(letter):X}]"
        yield rf"\DeclareUnicodeCharacter{{{ord(letter):04X}}}{{{said}}}"


def _document(notebook: Any, report: Path, place: Path) -> Iterator[str]:
    """The cells in LaTeX; code is left out but for the parameters."""
    write = _writer()
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            yield write(cell.source)
            continue
        if {"parameters", "injected-parameters"} & set(cell.metadata.get("tags", [])):
            yield _verbatim(cell.source)
        for index, output in enumerate(cell.get("outputs", [])):
            data = output.get("data", {})
            if "image/png" in data:
                yield _figure(output, report, place, f"picture-{number}-{index}.png")
            elif "text/markdown" in data:
                yield write(data["text/markdown"])
            elif text := data.get("text/plain", output.get("text", "")):
                yield _verbatim(text)


def _figure(output: Any, report: Path, place: Path, name: str) -> str:
    """A figure with its caption, as vectors where it was saved."""
    vector = report / f"{output.metadata.get('figure', '')}.pdf"
    if vector.is_file():
        name = vector.name
        shutil.copyfile(vector, place / name)
    else:
        (place / name).write_bytes(base64.b64decode(output["data"]["image/png"]))
    caption = latex_text(output.metadata.get("caption", ""))
    size = r"width=\linewidth,height=.8\textheight,keepaspectratio"
    return (
        rf"\begin{{center}}\includegraphics[{size}]{{{name}}}\end{{center}}"
        f"\n\n{{\\small {caption}}}"
    )


def _verbatim(text: str) -> str:
    wide = max(map(len, text.splitlines()), default=0)
    size = next((s for n, s in ((90, "footnotesize"), (130, "scriptsize")) if wide <= n), "tiny")
    # Taken out, what stands around it could join to another.
    body = text.replace(r"\end{verbatim}", r"\end {verbatim}")
    return f"{{\\{size}\n\\begin{{verbatim}}\n{body}\n\\end{{verbatim}}\n}}"


def _writer() -> Callable[[str], str]:
    """Markdown -> LaTeX."""
    import mistune

    class Renderer(mistune.HTMLRenderer):
        """As far as the notebooks go."""

        def text(self, text: str) -> str:
            return latex_text(text)

        def emphasis(self, text: str) -> str:
            return rf"\emph{{{text}}}"

        def strong(self, text: str) -> str:
            return rf"\textbf{{{text}}}"

        def codespan(self, text: str) -> str:
            return rf"\texttt{{{latex_text(text)}}}"

        def link(self, text: str, url: str, title: str | None = None) -> str:
            return text

        def linebreak(self) -> str:
            return "\\\\\n"

        def softbreak(self) -> str:
            return "\n"

        def inline_html(self, html: str) -> str:
            return latex_text(html)

        def block_html(self, html: str) -> str:
            return _verbatim(html)

        def paragraph(self, text: str) -> str:
            return f"{text}\n\n"

        def heading(self, text: str, level: int, **attrs: Any) -> str:
            kind = ("section", "subsection", "subsubsection")[min(level, 3) - 1]
            return f"\\{kind}*{{{text}}}\n"

        def block_text(self, text: str) -> str:
            return text

        def block_code(self, code: str, info: str | None = None) -> str:
            return _verbatim(code.rstrip("\n")) + "\n"

        def thematic_break(self) -> str:
            return "\n\\hrule\n"

        def list(self, text: str, ordered: bool, **attrs: Any) -> str:
            kind = "enumerate" if ordered else "itemize"
            return f"\\begin{{{kind}}}\n{text}\\end{{{kind}}}\n"

        def list_item(self, text: str) -> str:
            return f"\\item {text}\n"

    return mistune.create_markdown(renderer=Renderer(escape=False))
