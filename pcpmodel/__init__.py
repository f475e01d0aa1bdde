"""A laboratory for the Linux page allocator's per-CPU page lists (PCP)."""

# SPDX-License-Identifier: GPL-2.0-only

from pcpmodel.lazy import lazily

__version__ = "0.2.0"

# Name a user types -> module that has it.  Loaded at first use, so that
# ``import pcpmodel`` and ``pcpmodel --help`` stay quick.
_PUBLIC = {
    # the kernel's rules
    "release": "pcpmodel.kernel.releases",
    "releases": "pcpmodel.kernel.releases",
    "patches": "pcpmodel.kernel.releases",
    "tree": "pcpmodel.study.tree",
    "layout": "pcpmodel.kernel.layout",
    "policy": "pcpmodel.kernel.policies",
    "PerCpuPages": "pcpmodel.kernel.pcp",
    "Zone": "pcpmodel.kernel.zone",
    "Memory": "pcpmodel.kernel.memory",
    # machines
    "machine": "pcpmodel.hardware.machines",
    "machines": "pcpmodel.hardware.machines",
    "this_machine": "pcpmodel.hardware.platform",
    "measure": "pcpmodel.study.measure",
    "validate": "pcpmodel.study.validate",
    # simulation
    "simulate": "pcpmodel.simulation.run",
    "change": "pcpmodel.simulation.changes",
    "sweep": "pcpmodel.study.sweep.run",
    # recordings of real kernels
    "record": "pcpmodel.trace.record",
    "recording": "pcpmodel.trace.recording",
    "replay": "pcpmodel.trace.replay",
    "what_if": "pcpmodel.trace.what_if",
    # questions
    "fit": "pcpmodel.study.hold.fit",
    "limit": "pcpmodel.study.hold.limit",
    "compare": "pcpmodel.study.published.compare",
    "cover_letter": "pcpmodel.study.published.cover_letter",
    "advise": "pcpmodel.study.hold.advise",
    # notebooks
    "Tour": "pcpmodel.reports.tour",
    "table": "pcpmodel.reports.table",
    "show_versions": "pcpmodel.reports.versions",
    "InputError": "pcpmodel.errors",
    # rooms
    "datasets": "pcpmodel.datasets",
    "figures": "pcpmodel.figures",
    "numa": "pcpmodel.numa",
    "study": "pcpmodel.study",
    "workload": "pcpmodel.workload",
}

__all__ = ["__version__", *_PUBLIC]

__getattr__, __dir__ = lazily(__name__, _PUBLIC)
