"""Grids of runs on any executor, with resume."""

# SPDX-License-Identifier: GPL-2.0-only
