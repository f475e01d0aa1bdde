"""Documentation: ``make docs``.  What can be computed is computed while building."""

# SPDX-License-Identifier: GPL-2.0-only

import sys
from inspect import ismodule
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import generate  # noqa: E402

import pcpmodel as pm  # noqa: E402

project = "pcpmodel"
author = "pcpmodel developers"
version = release = pm.__version__
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx_click",
]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"description": "Linux's per-CPU page lists, on a laptop"}
html_show_sourcelink = False
doctest_global_setup = "from pcpmodel import *\nimport pcpmodel as pm"
numpydoc_show_class_members = False
autodoc_default_options = {"members": True}
autodoc_typehints = "none"
suppress_warnings = ["myst.header"]


def setup(app: object) -> None:
    """Write the generated pages before anything is read."""
    pages = {
        "reference.md": generate.reference(
            {name: ismodule(getattr(pm, name)) for name in pm._PUBLIC}
        ),
        "verification.md": generate.verification(ROOT),
    }
    for name, text in pages.items():
        path = ROOT / "docs" / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
