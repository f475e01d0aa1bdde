"""What goes to print beside a figure: its words without code, and a LaTeX float."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import re

__all__ = ["MATHS", "display", "latex", "latex_text"]

#: Identifiers of tables and workloads -> what stands in print, where it is not their words alone.
_NAMES = {
    "alloc_zone": "pages allocated from the zone",
    "build_time": "build time",
    "free_high": "drains for high orders",
    "lock_contention": "lock contention",
    "kbuild_8cgroups": "kbuild in 8 cgroups",
    "kbuild_j224": "kbuild -j224",
    "page_fault1": "page_fault1",  # as will-it-scale names its tests
    "page_fault2": "page_fault2",
    "sctp": "SCTP",
    "sctp_stream": "SCTP stream",
    "sctp_stream_many": "many SCTP streams",
    "swap_after": "buffers between moves",
    "try_to_unmap": "try_to_unmap()",
    "unix": "AF_UNIX",
    "unix_stream": "AF_UNIX stream",
}
_TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "…": r"\ldots{}",
}
#: What the plain fonts of LaTeX have no letter for, in its mathematics.
MATHS = {
    "µ": r"\mu", "μ": r"\mu", "±": r"\pm", "\N{MULTIPLICATION SIGN}": r"\times", "·": r"\cdot",
    "°": r"^\circ",
    "²": "^2", "³": "^3", "≤": r"\le", "≥": r"\ge", "≈": r"\approx", "≠": r"\ne", "→": r"\to",
    "←": r"\leftarrow", "≪": r"\ll", "≫": r"\gg", "√": r"\surd", "∞": r"\infty",
    "\N{GREEK SMALL LETTER SIGMA}": r"\sigma", "Σ": r"\Sigma", "\N{MINUS SIGN}": "-",
}  # fmt: skip


def display(name: object) -> str:
    """``lock contention`` for ``lock_contention``; what is no identifier stays as it is.

    Parameters
    ----------
    name : object
        Name of a column, a table or a parameter, or a path of these.

    Returns
    -------
    str
    """

    def words(found: re.Match[str]) -> str:
        return _NAMES.get(found[0], found[0].replace("_", " "))

    identifier, table = r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b", r"(?:^|(?<=: ))(?:sctp|unix)$"
    return re.sub(f"{identifier}|{table}", words, str(name))


def latex_text(text: str) -> str:
    """Escape what LaTeX would read as its own."""
    return "".join(
        f"${MATHS[letter]}$" if letter in MATHS else _TEX.get(letter, letter) for letter in text
    )


def latex(name: str, caption: str, again: str = "", run: str = "") -> str:
    r"""Write the float of a figure, with caption and label, to be ``\input``.

    Parameters
    ----------
    name : str
        Of the figure: the label is ``fig:NAME``, the file ``NAME.pdf``.
    caption : str
        Plain text.
    again : str
        Command that makes the figure, for a comment.
    run : str
        Notebook and data set, ``NOTEBOOK/DATA``, where those made the figure: others may have one
        of that name, so this stands before it in label and file.
    """
    name = f"{run}/{name}" if run else name
    made = [f"% made by: {again}"] if again else []
    return "\n".join(
        [
            *made,
            r"\begin{figure}",
            r"  \centering",
            rf"  \includegraphics[width=\linewidth]{{{name}.pdf}}",
            rf"  \caption{{{latex_text(caption)}}}",
            rf"  \label{{fig:{name}}}",
            r"\end{figure}",
            "",
        ]
    )
