"""The tables of ``data/``: read, checked, and brought in."""

# SPDX-License-Identifier: GPL-2.0-only

from pcpmodel.lazy import lazily

_PUBLIC = {
    "load_published": "pcpmodel.datasets.packages",
    "load_workload": "pcpmodel.datasets.packages",
    "published_names": "pcpmodel.datasets.packages",
}

__all__ = list(_PUBLIC)

__getattr__, __dir__ = lazily(__name__, _PUBLIC)
