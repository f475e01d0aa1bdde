"""The public C interface: see cython_pcp.pxd."""

# SPDX-License-Identifier: GPL-2.0-only

from cpython.pycapsule cimport PyCapsule_New

from pcpmodel.errors import InputError

cdef object pcp_policy_object(const pcp_policy *policy):
    if policy == NULL:
        raise InputError("the policy is NULL; give the address of a pcp_policy")
    if policy.abi != PCP_ABI:
        raise InputError(
            f"policy.abi={policy.abi}; this pcpmodel knows {PCP_ABI} only: "
            "fill it with pcp_abi() and build again"
        )
    return PyCapsule_New(<void *>policy, "pcpmodel.pcp_policy", NULL)


def struct_sizes():
    """Sizes of the public structs [bytes]; they never shrink or change within an ABI."""
    return {"pcp_view": sizeof(pcp_view), "pcp_policy": sizeof(pcp_policy)}
