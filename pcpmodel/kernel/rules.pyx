"""From a release to the record that the compiled core reads."""

# SPDX-License-Identifier: GPL-2.0-only

from pcpmodel.kernel.releases import release as find_release


cdef pcp_rules rules_of(object release) except *:
    """Rules of a release, by name or as a `Release`; InputError for an unknown name."""
    state = find_release(release)
    return {"tree": 0, "tree_hits": 0, **state.as_dict(), **state.steps()}


def as_dict(release):
    """Rules of a release as the compiled core holds them, by field name."""
    return {k: v for k, v in dict(rules_of(release)).items() if k not in ("tree", "tree_hits")}
