"""Questions asked of machines, workloads and releases, and their answers."""

# SPDX-License-Identifier: GPL-2.0-only
