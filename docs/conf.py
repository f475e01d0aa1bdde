"""Documentation: ``make docs``.  What can be computed is computed while building."""

# SPDX-License-Identifier: GPL-2.0-only

import sys
from importlib import import_module
from inspect import ismodule
from pathlib import Path

from sphinx.util.nodes import make_refnode

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import generate  # noqa: E402
import tour_page  # noqa: E402

import pcpmodel as pm  # noqa: E402
from pcpmodel.cli import main  # noqa: E402

project = "pcpmodel"
author = "pcpmodel developers"
version = release = pm.__version__
extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx_click",
]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
html_theme = "alabaster"
html_theme_options = {
    "code_font_size": "0.8em",
    "description": "Linux's per-CPU page lists, on a laptop",
    "font_family": "system-ui, sans-serif",
    "font_size": "16px",
    "head_font_family": "system-ui, sans-serif",
    "page_width": "1180px",
    "sidebar_width": "250px",
}
html_sidebars = {"**": ["about.html", "searchfield.html", "navigation.html", "localtoc.html"]}
html_static_path = ["static"]
html_extra_path = ["../build/tour"]  # tour.html, which needs no server
html_show_copyright = False
html_show_sourcelink = False
add_module_names = False
toc_object_entries = False
smartquotes = False  # options begin with two hyphens
doctest_global_setup = "from pcpmodel import *\nimport pcpmodel as pm"
numpydoc_show_class_members = False
autodoc_typehints = "none"
suppress_warnings = ["myst.header"]
nitpicky = True
default_role = "py:obj"  # what stands in `single quotes` of a docstring is a name
# Typed memoryviews in signatures of compiled methods.
nitpick_ignore_regex = [("py:class", r":1\] \w+")]
nb_execution_mode = "off"  # pcpmodel rerun does that
nb_mime_priority_overrides = [("html", "text/html", 0), ("html", "image/png", 10)]


def exists(path: str) -> bool:
    """Whether a dotted name is that of something in the package."""
    found = None
    for i, name in enumerate(parts := path.split(".")):
        if found is None or ismodule(found):
            try:
                found = import_module(".".join(parts[: i + 1]))
                continue
            except ImportError:
                pass
        fields = getattr(found, "__dataclass_fields__", {})
        if not hasattr(found, name) and name not in fields:
            return False
        found = getattr(found, name, fields.get(name))
    return True


def resolve(app: object, env: object, node: object, text: object) -> object:
    """Find what a docstring names the short way; only what exists nowhere is a warning."""
    target = node["reftarget"].partition("(")[0]
    program, _, verb = target.partition(" ")
    if program == "pcpmodel" and verb.split(" ")[0] in main.commands:
        return text
    first = target.removeprefix("pcpmodel.").partition(".")[0]
    near = [f"{pm._PUBLIC[first]}.{first}"] if first in pm._PUBLIC else []
    module = node.get("py:module") or "pcpmodel"
    near += [f"{module}.{target}", target]
    domain = env.get_domain("py")
    for path in near:
        if path in domain.objects:
            entry = domain.objects[path]
            return make_refnode(
                app.builder, node["refdoc"], entry.docname, entry.node_id, text, path
            )
    return text if any(exists(path) for path in near) else None


def write_tour(app: object) -> None:
    """Run the tour's choices; the tests of the examples need none of them."""
    if app.builder.name == "html":
        tour_page.write(ROOT / "build" / "tour")


def setup(app: object) -> None:
    """Write the generated pages before anything is read."""
    app.connect("missing-reference", resolve)
    (ROOT / "build" / "tour").mkdir(parents=True, exist_ok=True)  # Sphinx asks before it builds
    app.connect("builder-inited", write_tour)
    (ROOT / "docs" / "notebooks").mkdir(exist_ok=True)
    for name, text in generate.pages(ROOT).items():
        path = ROOT / "docs" / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
