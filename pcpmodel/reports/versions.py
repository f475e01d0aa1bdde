"""What ran: for the end of a notebook and for bug reports."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import platform
from importlib import metadata

from pcpmodel import __version__

__all__ = ["show_versions", "versions"]

PACKAGES = (
    "numpy",
    "scipy",
    "pandas",
    "xarray",
    "matplotlib",
    "seaborn",
    "papermill",
    "jupyterlab",
    "Cython",
)


def versions() -> dict[str, str]:
    """Versions of pcpmodel, Python, and the packages that results may depend on.

    Returns
    -------
    dict of str to str
        ``"not installed"`` where a package is missing.
    """
    found = {"pcpmodel": __version__, "Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def show_versions() -> None:
    """Print `versions`, one to a line, and the kernel and machine type."""
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    lines = {**versions(), "system": system}
    width = max(map(len, lines))
    print("\n".join(f"{name:{width}}  {version}" for name, version in lines.items()))
