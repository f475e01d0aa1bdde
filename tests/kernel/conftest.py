"""What the tests of kernel trees share."""

# SPDX-License-Identifier: GPL-2.0-only

import itertools
import os

import pytest

from helpers.trees import changed_excerpt


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
    """What tests compile, apart from the user's; workers share it."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        cache = tmp_path_factory.getbasetemp().parent / "cache"
    else:
        cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "XDG_CACHE_HOME", str(cache))
        yield


@pytest.fixture(scope="session")
def changed(tmp_path_factory):
    """The excerpt with parts of its text replaced: `changed_excerpt` into a new folder."""
    base, number = tmp_path_factory.mktemp("trees"), itertools.count()
    return lambda *pairs, **files: changed_excerpt(base / f"tree{next(number)}", *pairs, **files)
