"""What one hold of the zone lock costs, and how long it may be."""

# SPDX-License-Identifier: GPL-2.0-only
