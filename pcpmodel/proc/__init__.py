"""Text of a host (/proc, /sys, lscpu) -> records, and no more: it knows no rules of a kernel."""

# SPDX-License-Identifier: GPL-2.0-only
