"""Reports: tables to read, the executed notebook, its page, and the index of all."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Table", "html", "table", "tidy", "write_index"]

# nbconvert's page without what it would fetch from elsewhere (MathJax, RequireJS, Mermaid).
_PAGE = """
{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
"""

_INDEX = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>pcpmodel: reports</title>
<style>
 body { font: 16px/1.5 system-ui, sans-serif; color: #1b1b1b; background: #fff;
        max-width: 75rem; margin: 0 auto; padding: 1.5rem; }
 h1 { font-size: 1.6rem; margin: 0 0 1rem; }
 h2 { font-size: 1.25rem; margin: 2.5rem 0 .25rem; border-bottom: 1px solid #bbb; }
 h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
 p { margin: .25rem 0; }
 a { color: #0b57a4; }
 small { color: #555; }
 .failed { border-left: .3rem solid #b3261e; padding-left: .75rem; }
 .figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr));
            gap: 1rem; margin: .5rem 0; }
 figure { margin: 0; border: 1px solid #ddd; padding: .5rem; }
 figure img { width: 100%; height: 15rem; object-fit: contain; display: block; }
 figcaption { font-size: .85rem; color: #333; overflow-wrap: anywhere; }
</style>
</head>
<body>
<h1>pcpmodel: reports</h1>
{% set notebooks = entries | groupby("notebook") %}
<nav><ul>
{% for notebook, entries in notebooks %}
<li><a href="#{{ notebook }}">{{ entries[0].title }}</a></li>
{% endfor %}
</ul></nav>
{% for notebook, entries in notebooks %}
<h2 id="{{ notebook }}">{{ entries[0].title }}</h2>
{% for entry in entries %}
<section{% if entry.error %} class="failed"{% endif %}>
<h3><a href="{{ entry.page }}">{{ notebook }}, {{ entry.data }}</a></h3>
{% if entry.error %}
<p>The last run failed: {{ entry.error }}</p>
{% else %}
<p><a href="{{ entry.notebook_file }}">notebook</a>
{% for file in entry.others %} · <a href="{{ file.href }}">{{ file.name }}</a>{% endfor %}
<br><small>pcpmodel {{ entry.version }} · data {{ entry.data_digest[:12] }}{% if entry.reads %}:
{{ entry.reads | join(", ") }}{% endif %}</small></p>
<div class="figures">
{% for figure in entry.figures %}
<figure><a href="{{ entry.page }}">
<img src="{{ figure.shown }}" alt="{{ figure.alt }}" loading="lazy"></a>
<figcaption><b>{{ figure.name }}</b>
{% for file in figure.files %} <a href="{{ file.href }}">{{ file.name }}</a>{% endfor %}
<br>{{ figure.caption }}
<br><small>figure data {{ figure.digest[:12] }}</small></figcaption></figure>
{% endfor %}
</div>
{% endif %}
</section>
{% endfor %}
{% else %}
<p>No report yet.</p>
{% endfor %}
</body>
</html>
"""
_TABLE = (
    ".pcpmodel-table tbody th {white-space: nowrap; vertical-align: top}"
    ".pcpmodel-table tbody th.long {white-space: normal; min-width: 16em}"
    ".pcpmodel-table td {max-width: 30em; white-space: normal}"
    ".pcpmodel-table thead th {white-space: normal; vertical-align: bottom}"
)
_FIGURES = (".svg", ".png", ".pdf")
_WIDGET = "application/vnd.jupyter.widget-view+json"


@dataclass(frozen=True, eq=False)
class Table:
    """A frame as a reader wants it, see :func:`table`.

    Attributes
    ----------
    frame : pandas.DataFrame
    digits : int
        After the point.
    """

    frame: pd.DataFrame
    digits: int = 2

    def _cell(self, value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, float):
            return f"{value:,.{self.digits}f}"
        return f"{value:,}" if isinstance(value, int) else str(value)

    def _repr_html_(self) -> str:
        import pandas as pd

        shown = self.frame.astype(object).map(self._cell, na_action="ignore")
        with pd.option_context("display.max_colwidth", None):
            page = shown.to_html(border=0, na_rep="")
        # Names may break at their joints, labels of rows only between words and if they are long.
        head, start, body = page.partition("<tbody>")
        head = re.sub(r"_(?=[^<>]*</th>)", "_<wbr>", head)
        body = re.sub(r"_(?=[^<>]*</td>)", "_<wbr>", body)
        body = re.sub(r"<th([^>]*>[^<]{33})", r'<th class="long"\1', body)
        return f'<div class="pcpmodel-table"><style>{_TABLE}</style>{head}{start}{body}</div>'

    def __repr__(self) -> str:
        return self.frame.round(self.digits).to_string()


def table(frame: pd.DataFrame, digits: int = 2) -> Table:
    """Show a frame whole: every row, every word, numbers with ``digits`` after the point.

    Parameters
    ----------
    frame : pandas.DataFrame
    digits : int
        After the point, 0 or more.

    Returns
    -------
    Table
        Shows itself in a notebook.

    Examples
    --------
    >>> import pandas as pd
    >>> pm.table(pd.DataFrame({"wait_us": [0.1234]}), digits=3)
       wait_us
    0    0.123
    """
    return Table(frame, digits)


def tidy(notebook: Any) -> Any:
    """Take out of an executed notebook what differs from run to run.

    Widgets go too: on paper there is nobody to turn them, and their scripts
    would come from elsewhere.  A picture that came with one stays.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
        Changed in place.

    Returns
    -------
    nbformat.NotebookNode
        The same notebook.
    """
    keep = ("kernelspec", "language_info", "pcpmodel")
    notebook.metadata = {k: v for k, v in sorted(notebook.metadata.items()) if k in keep}
    for number, cell in enumerate(notebook.cells):
        tags = cell.metadata.get("tags")
        cell.metadata = {"tags": tags} if tags else {}
        if tags and {"injected-parameters", "papermill-error-cell-tag"} & set(tags):
            cell["id"] = f"inserted-{number}"
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if _stays(output)]
    return notebook


def _stays(output: Any) -> bool:
    """Take the widget out, and tell whether more than its name is left."""
    data = output.get("data", {})
    return data.pop(_WIDGET, None) is None or set(data) > {"text/plain"}


def html(notebook: Any, title: str) -> str:
    """Render an executed notebook as one page that needs nothing else.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
    title : str
        Title of the page.
    """
    from nbconvert.exporters import HTMLExporter

    exporter = HTMLExporter(raw_template=_PAGE, embed_images=True)
    page, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": title}})
    return page


def write_index(out: Path) -> None:
    """Write ``index.html``, which shows every report that lies in ``out``."""
    from jinja2 import Environment

    pages = [_made(path.parent) for path in out.glob("*/[!.]*/inputs.json")]
    pages += [_failed(path.parent) for path in out.glob("*/[!.]*.failed/error.txt")]
    pages.sort(key=lambda entry: (entry["notebook"], entry["data"]))
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = environment.from_string(_INDEX).render(entries=pages)
    new = out / ".index.html.new"
    new.write_text(text, encoding="utf-8")
    os.replace(new, out / "index.html")


def _entry(directory: Path) -> dict[str, Any]:
    notebook, base = directory.parent.name, f"{directory.parent.name}/{directory.name}"
    return {
        "notebook": notebook,
        "data": directory.name.removesuffix(".failed"),
        "title": notebook,
        "page": f"{base}/{notebook}.html",
        "notebook_file": f"{base}/{notebook}.ipynb",
    }


def _failed(directory: Path) -> dict[str, Any]:
    error = (directory / "error.txt").read_text(encoding="utf-8").partition("\n")[0]
    entry = _entry(directory) | {"error": error}
    if not (directory.parent.parent / entry["page"]).exists():  # the kernel died
        entry["page"] = f"{directory.parent.name}/{directory.name}/error.txt"
    return entry


def _package(name: str) -> str:
    """Directory of data/ that an input such as ``data hardware/x/file`` lies in."""
    return "/".join(name.removeprefix("data ").split("/")[:2])


def _made(directory: Path) -> dict[str, Any]:
    entry = _entry(directory)
    (record,) = json.loads((directory / "inputs.json").read_bytes()).values()
    values = record["_values_:"]
    base = entry["page"].rpartition("/")[0]

    def link(name: str) -> dict[str, str]:
        return {"name": Path(name).suffix[1:].upper() or name, "href": f"{base}/{name}"}

    about: dict[str, dict[str, str]] = {}
    figures: dict[str, list[str]] = {}
    others = []
    drawn = {str(Path(n).with_suffix("")) for n in values["outputs"] if Path(n).suffix in _FIGURES}
    for name in values["outputs"]:
        stem = str(Path(name).with_suffix(""))
        if Path(name).suffix in _FIGURES:
            figures.setdefault(stem, []).append(name)
        elif stem in drawn:  # what `figures.save` says of it
            about[stem] = json.loads((directory / name).read_bytes())
        elif Path(name).stem != entry["notebook"]:
            others.append({"name": name, "href": f"{base}/{name}"})
    for files in figures.values():
        files.sort(key=lambda name: _FIGURES.index(Path(name).suffix))
    return entry | {
        "title": values["title"],
        "version": values["version"],
        "data_digest": values["data_digest"],
        "reads": sorted({_package(n) for n in record["deps:"] if n.startswith("data ")}),
        "others": others,
        "figures": [
            {
                "name": stem,
                "shown": f"{base}/{files[0]}",
                "files": [link(file) for file in files],
                "alt": stem,
                "caption": "",
                "digest": "",
                **about.get(stem, {}),
            }
            for stem, files in figures.items()
        ],
    }
