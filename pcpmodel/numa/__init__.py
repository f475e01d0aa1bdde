"""NUMA hint faults: migration, and the TLB shootdowns that mapping late avoids.

>>> import pcpmodel as pm
>>> before = pm.numa.run("v5.12", scale=0.01)
>>> after = pm.numa.run("v5.13", scale=0.01)
>>> after.shootdown_interrupts < before.shootdown_interrupts
True
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from pcpmodel.lazy import lazily

# The parameters alone are needed by the command line's help.
_PUBLIC = {
    "Comparison": "pcpmodel.numa.pairs",
    "Experiment": "pcpmodel.numa.parameters",
    "RELEASES": "pcpmodel.numa.parameters",
    "Run": "pcpmodel.numa.runs",
    "compare": "pcpmodel.numa.pairs",
    "experiment": "pcpmodel.numa.parameters",
    "first_version": "pcpmodel.numa.others",
    "fit": "pcpmodel.numa.pairs",
    "gain_map": "pcpmodel.numa.gains",
    "migrate_pages": "pcpmodel.numa.others",
    "objections": "pcpmodel.numa.gains",
    "parameter_table": "pcpmodel.numa.runs",
    "repeated": "pcpmodel.numa.pairs",
    "run": "pcpmodel.numa.runs",
    "situations": "pcpmodel.numa.gains",
}

__all__ = list(_PUBLIC)

__getattr__, __dir__ = lazily(__name__, _PUBLIC)
