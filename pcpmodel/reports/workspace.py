"""A workspace: notebooks, examples and data of one's own, in a directory anywhere."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from pcpmodel import __version__
from pcpmodel.datasets.packages import WORKSPACE, own_data
from pcpmodel.errors import InputError
from pcpmodel.files import scratch, sync_tree

__all__ = ["PARTS", "make_workspace"]

#: What a workspace begins with: copies of what came with the package.
PARTS = ("notebooks", "examples", "data")

_NO_COPY = shutil.ignore_patterns(".*", "__pycache__", "scratch")


def make_workspace(directory: str | os.PathLike[str]) -> list[str]:
    """Make a workspace, complete or not at all.

    The package, used in it or below it, reads its data there and writes there, and not where the
    package was installed.

    Parameters
    ----------
    directory : path-like
        Not there yet, or empty.

    Returns
    -------
    list of str
        The parts that were copied; recordings come with ``data`` where the package has them,
        which a wheel does not.

    Raises
    ------
    InputError
        If something is there already, or a file cannot be copied; then nothing is left.
    """
    target = Path(os.path.abspath(directory))
    if os.path.lexists(target) and not (target.is_dir() and not any(target.iterdir())):
        raise InputError("is there already; give a new or an empty directory", file=target)
    source = own_data().parent
    parts = [part for part in PARTS if (source / part).is_dir()]
    target.parent.mkdir(parents=True, exist_ok=True)
    with scratch(".pcpmodel-init-", target.parent) as place:
        fresh = place / target.name
        for part in parts:
            try:
                shutil.copytree(source / part, fresh / part, ignore=_NO_COPY)
            except shutil.Error as error:  # of every file that it was tried for
                first, _, why = error.args[0][0]
                said = re.sub(r"^\[Errno \d+\] ([^:]*).*", r"\1", why, flags=re.DOTALL)
                raise InputError(f"cannot be copied to {target}: {said}", file=first) from None
        marker = json.dumps({"made_by": f"pcpmodel {__version__}"}) + "\n"
        (fresh / WORKSPACE).write_text(marker, encoding="utf-8")
        sync_tree(fresh)
        os.rename(fresh, target)
    return parts
