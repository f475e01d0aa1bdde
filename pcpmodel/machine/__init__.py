"""Hardware: what a hold of the zone lock costs and how the lock is handed over."""

# SPDX-License-Identifier: GPL-2.0-only
