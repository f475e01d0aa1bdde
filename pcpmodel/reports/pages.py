"""Reports: the executed notebook, its page, and the index of all."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pcpmodel.errors import InputError, printable
from pcpmodel.files import open_regular, read_json, write_whole
from pcpmodel.reports.notebook import saved_figures
from pcpmodel.reports.record import RECORD, made_from

__all__ = ["conclusion", "describe", "html", "remember_last", "tidy", "write_index"]

_MAX_ERROR_BYTES = 4096
#: What the last run did, beside the index.
_LAST = ".last-run.json"
#: Longest conclusion in the index [characters].
_HEADLINE = 320
_HEADING = re.compile(r"^#+ (.*)$", re.M)

# nbconvert's page without what it would fetch from elsewhere (MathJax, RequireJS, Mermaid).
_PAGE = """
{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block html_head_css -%}
<style>
figure.pcpmodel { margin: 0; }
figure.pcpmodel figcaption { max-width: 50rem; margin: .25rem 0 1rem .5rem; font-size: .9em; }
@media (prefers-color-scheme: dark) {
 :root { --jp-layout-color0: #111; --jp-layout-color1: #111; --jp-layout-color2: #222;
  --jp-layout-color3: #333; --jp-content-font-color0: #fff; --jp-content-font-color1: #e6e6e6;
  --jp-content-font-color2: #bbb; --jp-content-font-color3: #999; --jp-ui-font-color0: #fff;
  --jp-ui-font-color1: #e6e6e6; --jp-border-color1: #555; --jp-border-color2: #444;
  --jp-cell-editor-background: #1c1c1c; --jp-cell-editor-border-color: #333;
  --jp-rendermime-table-row-background: #1c1c1c; --jp-rendermime-table-row-hover-background: #333;
  --jp-content-link-color: #8ab4f8; --jp-mirror-editor-keyword-color: #c792ea;
  --jp-mirror-editor-string-color: #c3e88d; --jp-mirror-editor-comment-color: #999;
  --jp-mirror-editor-number-color: #f78c6c; --jp-mirror-editor-operator-color: #d6b8ff;
  --jp-mirror-editor-builtin-color: #82aaff; --jp-mirror-editor-variable-color: #e6e6e6; }
 body { background: #111; color: #e6e6e6; }
 .jp-RenderedImage img { background: #fff; padding: .25rem; }
}
@media print { .jp-InputArea { break-inside: avoid; } figure.pcpmodel { break-inside: avoid; } }
</style>
{%- endblock -%}
{%- block data_png scoped -%}
<figure class="pcpmodel">
<div class="jp-RenderedImage jp-OutputArea-output {{ extra_class }}">
<img src="data:image/png;base64,{{ output.data["image/png"] | escape_html }}"
{%- if output.metadata.get("alt") %} alt="{{ output.metadata["alt"] | escape_html }}"{% endif %}>
</div>
{%- if output.metadata.get("caption") %}
<figcaption>{{ output.metadata["caption"] | escape_html }}
{%- if output.metadata.get("again") %}<br><small>To make it again:
<code>{{ output.metadata["again"] | escape_html }}</code></small>{% endif -%}
</figcaption>{% endif -%}
</figure>
{%- endblock -%}
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
 .changed li, .answers li { margin: .35rem 0; }
 @media (prefers-color-scheme: dark) {
  body { color: #e6e6e6; background: #111; }
  a { color: #8ab4f8; }
  small, figcaption { color: #bbb !important; }
  figure { border-color: #444 !important; }
  figure img { background: #fff; }
 }
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
{% if last %}
<h2>What changed at the last run</h2>
<ul class="changed">
{% set first = last | selectattr("why", "equalto", "never run")
 | selectattr("status", "equalto", "done") | list %}
{% if first | length > 1 %}
<li>{{ first | length }} reports done for the first time.</li>
{% endif %}
{% for run in last if first | length < 2 or run not in first %}
<li><b>{{ run.name }}</b>: {{ run.status
}}{% if run.why == "never run" %} for the first time{% elif run.why %}: {{ run.why }}{% endif %}.
{% if run.before and run.before != run.now %}<br>Before: {{ run.before }}<br>Now: {{ run.now }}
{% elif run.before %}Its conclusion is as before.{% endif %}</li>
{% endfor %}
</ul>
{% endif %}
{% if entries %}
<h2>What the notebooks answer</h2>
<nav><ul class="answers">
{% for notebook, entries in notebooks %}
<li><a href="#{{ notebook }}">{{ entries[0].title }}</a>
{% for entry in entries if entry.conclusion %}
<br>{% if entries | length > 1 %}<b>{{ entry.data }}</b>: {% endif %}{{ entry.conclusion }}
{% endfor %}</li>
{% endfor %}
</ul></nav>
{% endif %}
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
<br><small>figure data {{ figure.digest[:12] }}{% if figure.again %} · again:
<code>{{ figure.again }}</code>{% endif %}</small></figcaption></figure>
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


def describe(notebook: Any, directory: Path) -> Any:
    """Give the pictures of an executed notebook the words that its figures were saved with.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
        Changed in place.
    directory : path
        Where its figures were saved.

    Returns
    -------
    nbformat.NotebookNode
        The same notebook.
    """
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        try:
            names = saved_figures(cell.source, directory)
        except InputError:  # it failed to run, too
            continue
        pictures = [o for o in cell.outputs if "image/png" in o.get("data", {})]
        if len(names) != len(pictures):
            continue  # which is which, nothing tells
        for name, picture in zip(names, pictures, strict=True):
            about = _about(directory / f"{name}.json")
            said = {key: about[key] for key in ("alt", "caption", "again") if key in about}
            picture.metadata.update(said | {"figure": name})
    return notebook


def conclusion(notebook: Any) -> str:
    """Return what an executed notebook concludes, in its first sentences; "" if it does not.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
    """
    inside, said = False, []
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and (found := _HEADING.search(cell.source)):
            inside = "conclusion" in found[1].lower()
        if inside and cell.cell_type == "code":
            said += [o["data"]["text/markdown"] for o in cell.outputs if _markdown(o)]
        if said and said[-1]:
            break
    return _headline(said[0].split("\n\n")[0]) if said else ""


def _headline(text: str) -> str:
    """The first items and sentences of a conclusion, whole ones as far as there is room."""
    items = [re.sub(r"^\s*[-*] |[`*]", "", line) for line in text.splitlines()]
    text, ends = "", []
    for item in filter(None, (" ".join(item.split()) for item in items)):
        ends += [len(text) + found.end() for found in re.finditer(r"[.?](?= [A-Z])", item)]
        text += item
        ends += [len(text)] * (text[-1] in ".?")
        text += " "
    text = text.rstrip()
    cut = next((end for end in reversed(ends) if end <= _HEADLINE), 0)
    return text[:cut] if cut else textwrap.shorten(text, _HEADLINE, placeholder=" …")


def _markdown(output: Any) -> bool:
    return bool(output.get("data", {}).get("text/markdown"))


def remember_last(out: Path, runs: Sequence[Mapping[str, str]]) -> None:
    """Keep what the last run did, for the index; a run that did nothing leaves it as it is.

    Parameters
    ----------
    out : path
        Where the reports are.
    runs : sequence of mapping
        ``name``, ``status``, ``why``, ``before`` and ``now``: the conclusions.
    """
    if runs:
        write_whole(out / _LAST, json.dumps(list(runs), indent=1).encode())


def _last(out: Path) -> list[Mapping[str, str]]:
    """What the last run did, without what is there no more."""
    try:
        told = read_json(out / _LAST)
    except InputError:
        return []
    there = {
        f"{path.parent.name}/{path.name.removesuffix('.failed')}" for path in out.glob("*/[!.]*")
    }
    runs = told if isinstance(told, list) else []
    return [run for run in runs if isinstance(run, dict) and run.get("name") in there]


def write_index(out: Path) -> None:
    """Write ``index.html``, which shows every report that lies in ``out``.

    It opens with what the last run changed and what the notebooks conclude.  A report whose
    record is damaged counts as not there: the next rerun makes it again.
    """
    from jinja2 import Environment

    made = (_made(path.parent) for path in out.glob(f"*/[!.]*/{RECORD}"))
    pages = [page for page in made if page is not None]
    pages += [_failed(path.parent) for path in out.glob("*/[!.]*.failed/error.txt")]
    pages.sort(key=lambda entry: (entry["notebook"], entry["data"]))
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = environment.from_string(_INDEX).render(entries=pages, last=_last(out))
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
    entry = _entry(directory) | {"error": printable(error), "conclusion": ""}
    if not (directory.parent.parent / entry["page"]).exists():  # the kernel died
        entry["page"] = f"{directory.parent.name}/{directory.name}/error.txt"
    return entry


def _about(path: Path) -> dict[str, str]:
    """What `figures.save` says of a picture, as far as it can be read."""
    try:
        said = read_json(path)
    except InputError:
        return {}
    known = ("caption", "alt", "digest", "again")
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
    others = []
    drawn = [str(Path(n).with_suffix("")) for n in record.outputs if Path(n).suffix in _FIGURES]
    figures: dict[str, list[str]] = {stem: [] for stem in drawn}
    for name in record.outputs:
        stem = str(Path(name).with_suffix(""))
        if Path(name).suffix in _FIGURES:
            figures[stem].append(name)
        elif stem in figures:  # what `figures.save` says of it
            if Path(name).suffix == ".json":
                about[stem] = _about(directory / name)
            else:
                figures[stem].append(name)
        elif Path(name).stem != entry["notebook"]:
            others.append({"name": name, "href": f"{base}/{name}"})
    for files in figures.values():
        files.sort(key=lambda name: (*_FIGURES, ".tex").index(Path(name).suffix))
    return entry | {
        "title": record.title,
        "conclusion": record.conclusion,
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
                "again": "",
                **about.get(stem, {}),
            }
            for stem, files in figures.items()
        ],
    }
