"""Hardware: machines, what a hold of the zone lock costs on them, their locks and caches."""

# SPDX-License-Identifier: GPL-2.0-only
