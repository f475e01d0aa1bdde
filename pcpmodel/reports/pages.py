"""Reports: the executed notebook, its page, and the index of all."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from pathlib import Path
from typing import Any

from pcpmodel.errors import InputError, printable
from pcpmodel.files import open_regular, read_json, write_whole
from pcpmodel.reports.record import RECORD, made_from

__all__ = ["html", "tidy", "write_index"]

_MAX_ERROR_BYTES = 4096

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
_FIGURES = (".svg", ".png", ".pdf")
_WIDGET = "application/vnd.jupyter.widget-view+json"


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
    """Write ``index.html``, which shows every report that lies in ``out``.

    One whose record is damaged counts as not there: the next rerun makes it again.
    """
    from jinja2 import Environment

    made = (_made(path.parent) for path in out.glob(f"*/[!.]*/{RECORD}"))
    pages = [page for page in made if page is not None]
    pages += [_failed(path.parent) for path in out.glob("*/[!.]*.failed/error.txt")]
    pages.sort(key=lambda entry: (entry["notebook"], entry["data"]))
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = environment.from_string(_INDEX).render(entries=pages)
    write_whole(out / "index.html", text.encode())


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
    with open_regular(directory / "error.txt", limit=None) as file:
        error = file.readline(_MAX_ERROR_BYTES).decode("utf-8", "replace").rstrip("\n")
    entry = _entry(directory) | {"error": printable(error)}
    if not (directory.parent.parent / entry["page"]).exists():  # the kernel died
        entry["page"] = f"{directory.parent.name}/{directory.name}/error.txt"
    return entry


def _about(path: Path) -> dict[str, str]:
    """What `figures.save` says of a picture, as far as it can be read."""
    try:
        said = read_json(path)
    except InputError:
        return {}
    known = ("caption", "alt", "digest")
    items = said.items() if isinstance(said, dict) else ()
    return {k: v for k, v in items if k in known and isinstance(v, str)}


def _package(name: str) -> str:
    """Directory of data/ that an input such as ``data hardware/x/file`` lies in."""
    return "/".join(name.removeprefix("data ").split("/")[:2])


def _made(directory: Path) -> dict[str, Any] | None:
    entry = _entry(directory)
    record = made_from(directory)
    if record is None:
        return None
    base = entry["page"].rpartition("/")[0]

    def link(name: str) -> dict[str, str]:
        return {"name": Path(name).suffix[1:].upper() or name, "href": f"{base}/{name}"}

    about: dict[str, dict[str, str]] = {}
    figures: dict[str, list[str]] = {}
    others = []
    drawn = {str(Path(n).with_suffix("")) for n in record.outputs if Path(n).suffix in _FIGURES}
    for name in record.outputs:
        stem = str(Path(name).with_suffix(""))
        if Path(name).suffix in _FIGURES:
            figures.setdefault(stem, []).append(name)
        elif stem in drawn:  # what `figures.save` says of it
            about[stem] = _about(directory / name)
        elif Path(name).stem != entry["notebook"]:
            others.append({"name": name, "href": f"{base}/{name}"})
    for files in figures.values():
        files.sort(key=lambda name: _FIGURES.index(Path(name).suffix))
    return entry | {
        "title": record.title,
        "version": record.version,
        "data_digest": record.data_digest,
        "reads": sorted({_package(n) for n in record.inputs if n.startswith("data ")}),
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
