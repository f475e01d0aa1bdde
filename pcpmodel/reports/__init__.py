"""Notebooks run, and published: reports, pages, the tour."""

# SPDX-License-Identifier: GPL-2.0-only
