"""NUMA hint faults: migration, and the TLB shootdowns that mapping late avoids.

>>> import pcpmodel as pm
>>> before = pm.numa.run("v5.12", scale=0.01)
>>> after = pm.numa.run("v5.13", scale=0.01)
>>> after.shootdown_interrupts < before.shootdown_interrupts
True
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from importlib import import_module

# Loaded at first use: the parameters are needed by the command line's help.
_PUBLIC = {
    "Comparison": "study",
    "Experiment": "parameters",
    "FirstVersion": "study",
    "MigratePages": "study",
    "RELEASES": "parameters",
    "Run": "study",
    "Situations": "study",
    "compare": "study",
    "experiment": "parameters",
    "first_version": "study",
    "fit": "study",
    "gain_map": "study",
    "migrate_pages": "study",
    "parameter_table": "study",
    "run": "study",
    "situations": "study",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
