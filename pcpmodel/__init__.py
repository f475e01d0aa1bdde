"""A laboratory for the Linux page allocator's per-CPU page lists (PCP)."""

# SPDX-License-Identifier: GPL-2.0-only

from importlib import import_module

__version__ = "0.1.0"

# Name a user types -> module that has it.  Loaded at first use, so that
# ``import pcpmodel`` and ``pcpmodel --help`` stay quick.
_PUBLIC = {
    "advise": "pcpmodel.study.advise",
    "capture": "pcpmodel.trace.state",
    "change": "pcpmodel.simulation.changes",
    "figures": "pcpmodel.figures",
    "fit": "pcpmodel.study.fit",
    "InputError": "pcpmodel.errors",
    "ladder": "pcpmodel.study.rules",
    "layout": "pcpmodel.kernel.layout",
    "limit": "pcpmodel.study.limit",
    "limits": "pcpmodel.study.limit",
    "load_published": "pcpmodel.data_package",
    "load_machines": "pcpmodel.machine",
    "machine": "pcpmodel.machine",
    "machines": "pcpmodel.machine",
    "numa": "pcpmodel.numa",
    "Memory": "pcpmodel.kernel.memory",
    "Zone": "pcpmodel.kernel.zone",
    "patches": "pcpmodel.kernel.releases",
    "PerCpuPages": "pcpmodel.kernel.pcp",
    "published_names": "pcpmodel.data_package",
    "pages_over_time": "pcpmodel.study.recordings",
    "record": "pcpmodel.trace.capture",
    "recorded_work": "pcpmodel.study.recordings",
    "recordings": "pcpmodel.study.recordings",
    "release": "pcpmodel.kernel.releases",
    "releases": "pcpmodel.kernel.releases",
    "replay": "pcpmodel.trace.replay",
    "what_if": "pcpmodel.trace.what_if",
    "answer_key": "pcpmodel.study.questions",
    "bulk_free": "pcpmodel.study.questions",
    "lock_starvation": "pcpmodel.study.questions",
    "compare": "pcpmodel.study.compare",
    "cover_letter": "pcpmodel.study.cover_letter",
    "explain_paragraph": "pcpmodel.study.explain",
    "explain_runs": "pcpmodel.study.explain",
    "stranded": "pcpmodel.study.questions",
    "tradeoff": "pcpmodel.study.questions",
    "zone_splitting": "pcpmodel.study.questions",
    "add_workload": "pcpmodel.study.workloads",
    "load_workload": "pcpmodel.data_package",
    "sweep": "pcpmodel.study.sweep",
    "simulate": "pcpmodel.simulation.run",
    "workload": "pcpmodel.workload",
    "this_machine": "pcpmodel.machine.platform",
    "throughput_gain": "pcpmodel.study.throughput",
    "show_versions": "pcpmodel.versions",
    "table": "pcpmodel.report",
    "Tour": "pcpmodel.tour",
    "trajectory": "pcpmodel.study.rules",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_PUBLIC[name])
    value = module if module.__name__ == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
